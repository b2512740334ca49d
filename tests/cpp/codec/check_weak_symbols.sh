#!/bin/sh
# check_weak_symbols.sh OBJECT...: fails if an object that is compiled for an instruction set emits a function that the
# linker could take for another file's, which a CPU without that instruction set would then run.
set -eu
checked=0
for object; do
    case $object in
        */avx*) ;;
        *) continue ;;
    esac
    checked=$((checked + 1))
    if nm -C "$object" | grep ' W ' | grep -v 'code_exact_avx'; then
        echo "weak in $object"
        exit 1
    fi
done
echo "$checked objects"
