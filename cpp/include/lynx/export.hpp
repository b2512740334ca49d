// Marks what the shared library shows. Everything else is hidden.
#pragma once

#define LYNX_API __attribute__((visibility("default")))
