# Compiler and linker flags: vmm_add_flags(target) for warnings, instrumentation and hardening of our own code.
include(CheckCCompilerFlag)
include(CheckLinkerFlag)

set(VMM_WARNINGS -Wall -Wextra -Wpedantic -Wshadow -Wconversion -Wstrict-prototypes -Wmissing-prototypes -Wcast-qual
  -Wundef -Wvla)
if(VMM_WERROR)
  list(APPEND VMM_WARNINGS -Werror)
endif()

set(VMM_INSTRUMENT "")
if(VMM_SANITIZE)
  set(VMM_INSTRUMENT -fsanitize=${VMM_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer -g)
endif()
if(VMM_COVERAGE)
  list(APPEND VMM_INSTRUMENT --coverage -fprofile-update=atomic)
endif()

# Each flag is asked for once and used where the compiler and the linker know it.
set(VMM_HARDENING "")
set(VMM_HARDENING_LINK "")
if(VMM_HARDEN AND NOT VMM_SANITIZE AND NOT VMM_COVERAGE)
  foreach(flag -fstack-protector-strong -fstack-clash-protection -fcf-protection -mbranch-protection=standard -fno-plt)
    string(MAKE_C_IDENTIFIER "VMM_HAS${flag}" known)
    check_c_compiler_flag("-Werror ${flag}" ${known})
    if(${known})
      list(APPEND VMM_HARDENING ${flag})
    endif()
  endforeach()
  # glibc checks buffer sizes only in optimised code, and warns otherwise; some compilers define a level of their own.
  list(APPEND VMM_HARDENING "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-U_FORTIFY_SOURCE>"
    "$<$<CONFIG:Release,RelWithDebInfo,MinSizeRel>:-D_FORTIFY_SOURCE=2>")
  foreach(flag -Wl,-z,relro -Wl,-z,now -Wl,-z,noexecstack -Wl,--no-undefined)
    string(MAKE_C_IDENTIFIER "VMM_LINKS${flag}" known)
    check_linker_flag(C "${flag}" ${known})
    if(${known})
      list(APPEND VMM_HARDENING_LINK "${flag}")
    endif()
  endforeach()
endif()

function(vmm_add_flags target)
  target_compile_options(${target} PRIVATE ${VMM_WARNINGS} ${VMM_INSTRUMENT} ${VMM_HARDENING})
  target_compile_definitions(${target} PRIVATE _GNU_SOURCE)
  target_link_options(${target} PRIVATE ${VMM_INSTRUMENT})
endfunction()
