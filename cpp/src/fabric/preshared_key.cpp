#include "lynx/preshared_key.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>

#include "core/text.hpp"
#include "fabric/preshared_key_impl.hpp"
#include "fabric/socket.hpp"
#include "lynx/error.hpp"

namespace lynx {

using fabric::Secret;
using fabric::system_reason;

namespace {

/// Bytes of the longest text of a key; far more than one needs.
constexpr std::size_t kMaxText = 4096;

/// A file descriptor behind RAII.
class File {
   public:
    explicit File(int descriptor) noexcept : descriptor_(descriptor) {}
    File(const File&) = delete;
    File& operator=(const File&) = delete;
    ~File() {
        if (descriptor_ >= 0) close(descriptor_);
    }
    [[nodiscard]] int get() const noexcept { return descriptor_; }

   private:
    int descriptor_;
};

[[noreturn]] void refuse(const std::string& path, const std::string& why) {
    throw InvalidArgument(text("key file ", path, ": ", why));
}

void require_sodium() {
    if (sodium_init() < 0) throw Error("libsodium could not be started: this system gives it no random numbers");
}

[[nodiscard]] bool is_space(char c) {
    return std::isspace(static_cast<unsigned char>(c)) != 0;
}

[[nodiscard]] bool is_hex(char c) {
    return std::isxdigit(static_cast<unsigned char>(c)) != 0;
}

/// Another reader of the file could pretend to be a peer.
void require_private(const std::string& path, int descriptor) {
    struct stat about{};
    if (fstat(descriptor, &about) != 0) refuse(path, system_reason(errno));
    if (!S_ISREG(about.st_mode)) refuse(path, "is no regular file");
    if (about.st_uid != geteuid() && about.st_uid != 0) refuse(path, "belongs to another user; make a key of your own");
    if ((about.st_mode & (S_IRWXG | S_IRWXO)) != 0)
        refuse(path, text("others than its owner may use it; chmod 600 ", path, ", and make a new key if they have"));
}

}  // namespace

PresharedKey PresharedKey::from_bytes(ConstByteSpan secret) {
    require_sodium();
    if (secret.size() < kMinBytes)
        throw InvalidArgument(text("a pre-shared key of ", secret.size(), " bytes is too short; at least ", kMinBytes,
                                   " random ones are needed: `lynx keygen FILE` makes them"));
    auto impl = std::make_shared<Impl>();
    crypto_generichash(impl->mac_key.data(), impl->mac_key.size(),
                       reinterpret_cast<const unsigned char*>(secret.data()), secret.size(), nullptr, 0);
    return PresharedKey(std::move(impl));
}

PresharedKey PresharedKey::from_text(std::string_view text) {
    require_sodium();
    while (!text.empty() && is_space(text.front())) text.remove_prefix(1);
    while (!text.empty() && is_space(text.back())) text.remove_suffix(1);
    Secret<kMaxText> secret;
    std::size_t bytes = 0;
    const bool hex = std::all_of(text.begin(), text.end(), is_hex);
    const int bad =
        hex ? sodium_hex2bin(secret.data(), secret.size(), text.data(), text.size(), nullptr, &bytes, nullptr)
            : sodium_base642bin(secret.data(), secret.size(), text.data(), text.size(), nullptr, &bytes, nullptr,
                                sodium_base64_VARIANT_ORIGINAL);
    // Not a word of what it says: it may be most of a key.
    if (bad != 0)
        throw InvalidArgument("a pre-shared key has to be hexadecimal or base64: `lynx keygen FILE` makes one");
    return from_bytes({reinterpret_cast<const std::byte*>(secret.data()), bytes});
}

PresharedKey PresharedKey::from_file(const std::string& path) {
    const File file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (file.get() < 0)
        refuse(path, text(system_reason(errno),
                          errno == ENOENT ? "; `lynx keygen` makes one, to be copied to the peers" : ""));
    require_private(path, file.get());
    Secret<kMaxText> content;
    std::size_t bytes = 0;
    while (bytes < content.size()) {
        const ssize_t got = read(file.get(), content.data() + bytes, content.size() - bytes);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) refuse(path, system_reason(errno));
        if (got == 0) break;
        bytes += static_cast<std::size_t>(got);
    }
    if (bytes == content.size()) refuse(path, text("is no key: it has ", kMaxText, " bytes or more"));
    try {
        return from_text({reinterpret_cast<const char*>(content.data()), bytes});
    } catch (const InvalidArgument& e) {
        refuse(path, e.what());
    }
}

void PresharedKey::generate_file(const std::string& path) {
    require_sodium();
    Secret<kMinBytes> secret;
    randombytes_buf(secret.data(), secret.size());
    Secret<2 * kMinBytes + 1> line;  // the digits, and a zero that becomes the end of the line
    auto* digits = reinterpret_cast<char*>(line.data());
    sodium_bin2hex(digits, line.size(), secret.data(), secret.size());
    line.data()[line.size() - 1] = '\n';

    const File file(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, S_IRUSR | S_IWUSR));
    if (file.get() < 0)
        refuse(path, text("cannot be made: ", system_reason(errno),
                          errno == EEXIST ? "; a key that is in use is not overwritten, name another file" : ""));
    const ssize_t written = write(file.get(), line.data(), line.size());
    if (written != static_cast<ssize_t>(line.size())) {
        const int error = errno;
        unlink(path.c_str());
        refuse(path, text("could not be written: ", written < 0 ? system_reason(error) : "no room left"));
    }
}

}  // namespace lynx
