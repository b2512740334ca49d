#!/bin/sh
# check_ptx.sh FILE...: device code as the CUDA compiler wrote it. Fails if it fused a multiply and an add, flushes
# subnormals, divides only nearly, or has a trap, which stands silently for what the compiler could not translate.
set -eu
grep -qh 'div[.]rn[.]f32' "$@" || { echo "no division where the format has one"; exit 1; }
! grep -nE 'trap;|fma[.]|mad[.][a-z.]*f32|[.]ftz|(div|rcp)[.](full|approx)' "$@"
