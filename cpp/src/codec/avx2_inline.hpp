// For what is compiled for an instruction set that other files do not assume: nothing of it may be emitted where
// the linker could take it for another file's.
#pragma once

#define LYNX_INLINE [[gnu::always_inline]] inline
