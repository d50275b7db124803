#!/bin/sh
# Builds the library and bench_pair into the folder given, with what is on this machine and nothing fetched: CMake if one
# is there (of .venv, or the system's, 3.20 or newer), else the compiler alone, without the hardening flags.
set -eu
cd "$(dirname "$0")/.."
folder=${1:-build/cpu}
mkdir -p "$folder"
for cmake in .venv/bin/cmake cmake; do
  command -v "$cmake" >/dev/null || continue
  if "$cmake" -S libvmm -B "$folder" -G 'Unix Makefiles' -DVMM_BUILD_TESTS=OFF -DVMM_BUILD_BENCH=ON -DVMM_KERNELS=OFF \
    -DCMAKE_BUILD_TYPE=RelWithDebInfo >"$folder/configure.log" 2>&1; then
    MAKEFLAGS='' "$cmake" --build "$folder" -j "${JOBS:-2}" --target bench_pair >"$folder/build.log" 2>&1 && exit 0
    cat "$folder/build.log" >&2
    exit 1
  fi
done
echo "no CMake that works here: taking the compiler alone"
version=$(sed -n 's/^project(vmm VERSION \([0-9.]*\).*/\1/p' libvmm/CMakeLists.txt)
number=$(echo "$version" | awk -F. '{ print $1 * 10000 + $2 * 100 + $3 }')
flags="-std=c11 -O2 -g -DNDEBUG -D_GNU_SOURCE -Ilibvmm/include -Ilibvmm/src"
# shellcheck disable=SC2086
${CC:-cc} $flags -fPIC -fvisibility=hidden -DVMM_VERSION_STRING="\"$version\"" -DVMM_VERSION_NUMBER="$number" -shared \
  libvmm/src/*/*.c -Wl,--version-script=libvmm/libvmm.map -o "$folder/libvmm.so" -pthread -ldl
# shellcheck disable=SC2086
${CC:-cc} $flags libvmm/bench/bench_pair.c libvmm/bench/pair_*.c libvmm/bench/harness.c -o "$folder/bench_pair" \
  -L"$folder" -lvmm -Wl,-rpath,'$ORIGIN' -pthread -ldl -lm
