# The C tests. Each program links the objects, not the shared library, so that it may include internal headers.
#   tests/unit/test_<thing>.c   one program each                      label unit
#   tests/conformance/*.c       one program, `conformance`            label conformance
#   tests/faults/*.c            one program, `faults`                 label faults
#   tests/fuzz/fuzz_<thing>.c   one program each, over tests/fuzz/main.c or libFuzzer (VMM_FUZZ)   label fuzz
#   tests/support/*.c           linked into all of them
enable_testing()

file(GLOB support_sources CONFIGURE_DEPENDS tests/support/*.c)
if(support_sources)
  add_library(vmm_test_support OBJECT ${support_sources})
  target_include_directories(vmm_test_support PRIVATE include src tests)
  vmm_add_flags(vmm_test_support)
endif()

function(vmm_add_test_program name)
  add_executable(${name} ${ARGN})
  target_include_directories(${name} PRIVATE src tests)
  target_compile_definitions(${name} PRIVATE VMM_TEST_SOURCE_DIR="${CMAKE_CURRENT_SOURCE_DIR}"
    VMM_TEST_SANITIZE="${VMM_SANITIZE}" VMM_TEST_FATBIN="${VMM_FATBIN}")
  vmm_add_flags(${name})
  target_link_libraries(${name} PRIVATE vmm_objects Threads::Threads ${CMAKE_DL_LIBS} m)
  if(TARGET vmm_test_support)
    target_link_libraries(${name} PRIVATE vmm_test_support)
  endif()
endfunction()

# Time limits are for hangs, not for speed: an instrumented run on a busy machine must pass too.
function(vmm_add_test name label limit)
  add_test(NAME ${name} COMMAND ${ARGN})
  set_tests_properties(${name} PROPERTIES LABELS ${label} TIMEOUT ${limit})
endfunction()

file(GLOB unit_sources CONFIGURE_DEPENDS tests/unit/test_*.c)
# Our view of the driver's interface is compared with the real one where that is at hand.
find_path(VMM_CUDA_INCLUDE cudaTypedefs.h HINTS $ENV{CUDA_PATH}/include /usr/local/cuda/include)
set(cuda_version 0)
if(VMM_CUDA_INCLUDE)
  file(STRINGS ${VMM_CUDA_INCLUDE}/cuda.h cuda_version REGEX "^#define CUDA_VERSION [0-9]+")
  string(REGEX MATCH "[0-9]+" cuda_version "${cuda_version}")
endif()
if(cuda_version LESS 12050)
  list(FILTER unit_sources EXCLUDE REGEX "/test_cuda_abi\\.c$")
endif()
foreach(source IN LISTS unit_sources)
  get_filename_component(name ${source} NAME_WE)
  vmm_add_test_program(${name} ${source})
  vmm_add_test(${name} unit 300 ${name})
endforeach()
if(TARGET test_cuda_abi)
  target_include_directories(test_cuda_abi SYSTEM PRIVATE ${VMM_CUDA_INCLUDE})
endif()
if(TARGET test_cuda_fake) # with a stand-in for the driver that carries its soname
  add_library(fake_cuda SHARED tests/unit/fake_cuda.c)
  target_include_directories(fake_cuda PRIVATE src include)
  vmm_add_flags(fake_cuda)
  set_target_properties(fake_cuda PROPERTIES NO_SONAME ON C_VISIBILITY_PRESET default)
  target_link_options(fake_cuda PRIVATE -Wl,-soname,libcuda.so.1)
  add_dependencies(test_cuda_fake fake_cuda)
  target_compile_definitions(test_cuda_fake PRIVATE VMM_TEST_FAKE_CUDA="$<TARGET_FILE:fake_cuda>")
endif()
if(TARGET test_cuda AND TARGET vmm_kernels)
  add_dependencies(test_cuda vmm_kernels)
endif()

file(GLOB conformance_sources CONFIGURE_DEPENDS tests/conformance/*.c)
if(conformance_sources)
  vmm_add_test_program(conformance ${conformance_sources})
  vmm_add_test(conformance conformance 300 conformance)
  # Every fact of the document has a case, and the other way round. The document is not part of a source package.
  set(VMM_FACTS ${CMAKE_CURRENT_SOURCE_DIR}/../docs/driver-facts.md)
  if(EXISTS ${VMM_FACTS})
    vmm_add_test(conformance_docs conformance 60 conformance --check-docs ${VMM_FACTS})
  endif()
endif()

file(GLOB faults_sources CONFIGURE_DEPENDS tests/faults/*.c)
if(faults_sources)
  vmm_add_test_program(faults ${faults_sources})
  vmm_add_test(faults_sample faults 600 faults --sample)
endif()

file(GLOB fuzz_sources CONFIGURE_DEPENDS tests/fuzz/fuzz_*.c)
foreach(source IN LISTS fuzz_sources)
  get_filename_component(name ${source} NAME_WE)
  if(VMM_FUZZ)
    vmm_add_test_program(${name} ${source})
    target_compile_options(${name} PRIVATE -fsanitize=fuzzer)
    target_link_options(${name} PRIVATE -fsanitize=fuzzer)
  else()
    vmm_add_test_program(${name} ${source} tests/fuzz/main.c)
    vmm_add_test(${name} fuzz 300 ${name})
  endif()
endforeach()

# The examples are what a user writes: public headers, the shared library.    examples/*.c   label example
file(GLOB example_sources CONFIGURE_DEPENDS examples/*.c)
foreach(source IN LISTS example_sources)
  get_filename_component(name ${source} NAME_WE)
  add_executable(example_${name} ${source})
  vmm_add_flags(example_${name})
  target_link_libraries(example_${name} PRIVATE vmm::vmm Threads::Threads)
  vmm_add_test(example_${name} example 60 example_${name})
endforeach()

# Under a sanitizer: the fault that is planted for it must be reported.
function(vmm_add_planted sanitizer fault report)
  if("${VMM_SANITIZE}" MATCHES "${sanitizer}")
    vmm_add_test(planted_${fault} sanitizer 60 planted ${fault})
    set_tests_properties(planted_${fault} PROPERTIES PASS_REGULAR_EXPRESSION "${report}")
  endif()
endfunction()

if(VMM_SANITIZE)
  vmm_add_test_program(planted tests/planted/planted.c)
  vmm_add_planted(thread race "data race")
  vmm_add_planted(address overflow "heap-buffer-overflow")
  vmm_add_planted(undefined signed "signed integer overflow")
endif()
