// What the codec's targets have in common.
#pragma once

#include <string>

#include "fuzz/input.hpp"
#include "lynx/codec.hpp"
#include "lynx/error.hpp"

namespace lynx::fuzz {

/// Calls use(const Codec&) for each codec of this CPU. The first is the scalar one: what the others are held against.
template <class Use>
void for_each_codec(Use&& use) {
    use(Codec::by_name("scalar"));
    for (const std::string_view name : Codec::available())
        if (name != "scalar") use(Codec::by_name(name));
}

/// The call has to throw InvalidArgument; any other exception, or none, is a finding.
template <class Call>
void require_refused(const std::string& what, Call&& call) {
    try {
        call();
    } catch (const InvalidArgument&) {
        return;
    }
    throw Finding(what + " was accepted");
}

}  // namespace lynx::fuzz
