// Reading FlatBuffers from a stranger, once for every table of the schema.
#pragma once

#include <flatbuffers/flatbuffers.h>

#include <cstring>
#include <vector>

#include "core/text.hpp"
#include "lynx/buffer.hpp"
#include "lynx/error.hpp"

namespace lynx {

/// The root table, verified: every offset and length in it lies inside `bytes`. Throws ProtocolError.
template <class Table>
[[nodiscard]] const Table& verified_root(ConstByteSpan bytes, const char* what) {
    const auto* data = reinterpret_cast<const std::uint8_t*>(bytes.data());
    flatbuffers::Verifier verifier(data, bytes.size());
    if (bytes.size() < 8 || !verifier.VerifyBuffer<Table>(nullptr))
        throw ProtocolError(text("the peer sent a malformed ", what, " of ", bytes.size(), " bytes"));
    return *flatbuffers::GetRoot<Table>(data);
}

/// One struct of a vector. The verifier sees to the alignment of the vector's length alone: where a stranger has put
/// the structs, they may lie anywhere.
template <class Struct>
[[nodiscard]] Struct struct_at(const flatbuffers::Vector<const Struct*>& vector, flatbuffers::uoffset_t index) {
    Struct value;
    std::memcpy(static_cast<void*>(&value), vector.Data() + index * sizeof(Struct), sizeof(Struct));
    return value;
}

inline void check_version(std::uint16_t theirs, std::uint16_t ours, const char* what) {
    if (theirs != ours)
        throw ProtocolError(text("the peer sent a ", what, " of version ", theirs, "; this build reads version ", ours,
                                 ": run the same Lynx on both sides"));
}

[[nodiscard]] inline std::vector<std::byte> bytes_of(const flatbuffers::FlatBufferBuilder& builder) {
    const auto* begin = reinterpret_cast<const std::byte*>(builder.GetBufferPointer());
    return {begin, begin + builder.GetSize()};
}

}  // namespace lynx
