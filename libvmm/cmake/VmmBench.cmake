# The benchmarks: one program per bench/bench_<thing>.c over the common bench/harness.c. They take the library as a user
# has it, except for bench_space, which measures a floor alone.
file(GLOB bench_sources CONFIGURE_DEPENDS bench/bench_*.c)
foreach(source IN LISTS bench_sources)
  get_filename_component(name ${source} NAME_WE)
  add_executable(${name} ${source} bench/harness.c)
  vmm_add_flags(${name})
  target_link_libraries(${name} PRIVATE Threads::Threads ${CMAKE_DL_LIBS} m)
  if(name STREQUAL bench_space)
    target_include_directories(${name} PRIVATE src)
    target_link_libraries(${name} PRIVATE vmm_objects)
  else()
    target_link_libraries(${name} PRIVATE vmm::vmm)
  endif()
endforeach()
target_sources(bench_pair PRIVATE bench/pair_pool.c bench/pair_threads.c)
target_sources(bench_cuda PRIVATE bench/machine.c bench/cuda_pairs.c bench/cuda_streams.c bench/cuda_growth.c
  bench/cuda_load.c bench/cuda_trim.c bench/cuda_bandwidth.c)
if(VMM_FATBIN)
  target_compile_definitions(bench_cuda PRIVATE VMM_BENCH_FATBIN="${VMM_FATBIN}")
  add_dependencies(bench_cuda vmm_kernels)
endif()

# So that they go on working: on the simulated device, in no time. Their figures mean nothing there.
if(VMM_BUILD_TESTS)
  vmm_add_test(bench_cuda_smoke bench-smoke 120 bench_cuda --driver sim)
  vmm_add_test(bench_pair_smoke bench-smoke 120 bench_pair --rounds 2 --pairs 1000 --most 10000 --threads 2)
  if(NOT VMM_SANITIZE) # it knows no small sizes
    vmm_add_test(bench_space_smoke bench-smoke 120 bench_space 1000 1)
  endif()
endif()
