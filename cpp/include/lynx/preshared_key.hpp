// The secret that the nodes of one cluster share: whoever has it is a peer.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "lynx/buffer.hpp"
#include "lynx/export.hpp"

namespace lynx {

/// A pre-shared key for control connections: ConnectOptions::key, ListenOptions::key. Copies share one memory, which is
/// wiped with the last of them. Any thread may read it. All that can be wrong with a key throws InvalidArgument.
class LYNX_API PresharedKey {
   public:
    /// At least this much secret; `lynx keygen` and generate_file() make exactly so much.
    static constexpr std::size_t kMinBytes = 32;

    /// The secret itself, of any length from kMinBytes on. It has to be random: a password is none.
    [[nodiscard]] static PresharedKey from_bytes(ConstByteSpan secret);
    /// The secret as hexadecimal digits or base64, white space at its ends aside. Where both would do it is
    /// hexadecimal.
    [[nodiscard]] static PresharedKey from_text(std::string_view text);
    /// The text in a file. The file has to belong to this process's user or root, and group and others must have no
    /// permission on it.
    [[nodiscard]] static PresharedKey from_file(const std::string& path);
    /// Writes a new random key, in hexadecimal, into a new file that its owner alone may read. A file that is there
    /// already is left as it is.
    static void generate_file(const std::string& path);

    struct Impl;  // cpp/src/fabric/preshared_key_impl.hpp
    [[nodiscard]] const Impl& impl() const noexcept { return *impl_; }

   private:
    explicit PresharedKey(std::shared_ptr<const Impl> impl) noexcept : impl_(std::move(impl)) {}
    std::shared_ptr<const Impl> impl_;
};

}  // namespace lynx
