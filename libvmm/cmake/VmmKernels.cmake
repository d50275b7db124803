# The GPU-side test kernels: machine code for the architectures below as far as nvcc knows them, and PTX for the newest,
# in one fatbin. Without nvcc the library lacks nothing; its vmm.kernel_* operations then answer NOT_SUPPORTED on a GPU.
set(VMM_KERNEL_SOURCE ${CMAKE_CURRENT_SOURCE_DIR}/kernels/kernels.cu)
set(VMM_KERNEL_ARCHITECTURES 75 80 86 89 90 100 120)

find_program(VMM_NVCC nvcc HINTS $ENV{CUDA_PATH}/bin /usr/local/cuda/bin)
if(VMM_NVCC AND EXISTS ${VMM_KERNEL_SOURCE})
  execute_process(COMMAND ${VMM_NVCC} --list-gpu-arch OUTPUT_VARIABLE known RESULT_VARIABLE failed ERROR_QUIET)
  set(codes "")
  set(newest "")
  foreach(architecture IN LISTS VMM_KERNEL_ARCHITECTURES)
    if(known MATCHES "compute_${architecture}[\r\n]" OR known MATCHES "compute_${architecture}$")
      list(APPEND codes -gencode arch=compute_${architecture},code=sm_${architecture})
      set(newest ${architecture})
    endif()
  endforeach()
  if(newest AND NOT failed)
    set(VMM_FATBIN ${CMAKE_CURRENT_BINARY_DIR}/vmm_kernels.fatbin CACHE INTERNAL "the GPU-side test kernels, or empty")
    add_custom_command(OUTPUT ${VMM_FATBIN}
      COMMAND ${VMM_NVCC} -fatbin -O3 --threads 2 -allow-unsupported-compiler ${codes}
        -gencode arch=compute_${newest},code=compute_${newest} -o ${VMM_FATBIN} ${VMM_KERNEL_SOURCE}
      DEPENDS ${VMM_KERNEL_SOURCE} VERBATIM COMMENT "nvcc: vmm_kernels.fatbin")
    add_custom_target(vmm_kernels ALL DEPENDS ${VMM_FATBIN})
    if(VMM_TOP_LEVEL) # else the including project decides where it goes
      install(FILES ${VMM_FATBIN} DESTINATION ${CMAKE_INSTALL_DATADIR}/vmm)
    endif()
  else()
    message(STATUS "nvcc at ${VMM_NVCC} knows none of the architectures wanted: no GPU-side test kernels")
  endif()
endif()
