#!/bin/sh
# Runs a command with address randomisation off where that is allowed: ThreadSanitizer of older compilers cannot place
# its shadow memory under kernels that randomise over many bits.
if setarch "$(uname -m)" -R true 2>/dev/null; then exec setarch "$(uname -m)" -R "$@"; fi
exec "$@"
