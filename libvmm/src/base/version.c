/* The version; its one source is the VERSION of libvmm/CMakeLists.txt, handed in by the build. */
#include "vmm/vmm.h"

#ifndef VMM_VERSION_STRING
#error "the build defines VMM_VERSION_STRING and VMM_VERSION_NUMBER"
#endif

int vmm_version(void) { return VMM_VERSION_NUMBER; }

const char *vmm_version_string(void) { return VMM_VERSION_STRING; }
