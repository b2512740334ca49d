// Every codec that this CPU runs, one after the other.
#pragma once

#include <gtest/gtest.h>

#include <functional>

#include "lynx/codec.hpp"

namespace lynx::testing {

inline void for_each_codec(const std::function<void(const Codec&)>& check) {
    for (const std::string_view name : Codec::available()) {
        SCOPED_TRACE(name);
        check(Codec::by_name(name));
    }
}

}  // namespace lynx::testing
