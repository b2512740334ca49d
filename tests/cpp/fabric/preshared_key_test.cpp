#include "lynx/preshared_key.hpp"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "fabric/preshared_key_impl.hpp"
#include "lynx/error.hpp"

namespace lynx {
namespace {

std::string hex_key() {
    return "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f";
}

std::string base64_key() {
    return "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
}

bool same(const PresharedKey& a, const PresharedKey& b) {
    return std::memcmp(a.impl().mac_key.data(), b.impl().mac_key.data(), a.impl().mac_key.size()) == 0;
}

template <class Call>
std::string refusal_of(Call&& call) {
    try {
        call();
    } catch (const InvalidArgument& e) {
        return e.what();
    }
    return "nothing was thrown";
}

bool contains(const std::string& all, const std::string& part) {
    return all.find(part) != std::string::npos;
}

/// A folder that goes with its files.
class KeyFile : public testing::Test {
   protected:
    KeyFile() {
        std::string name = testing::TempDir() + "lynx-key-XXXXXX";
        folder_ = mkdtemp(name.data());
    }
    ~KeyFile() override { std::filesystem::remove_all(folder_); }

    [[nodiscard]] std::string path() const { return folder_ + "/key"; }
    void write(const std::string& content, mode_t mode = 0600) {
        std::ofstream(path()) << content;
        chmod(path().c_str(), mode);
    }

   private:
    std::string folder_;
};

TEST(PresharedKey, IsTheSameFromHexFromBase64AndFromItsBytes) {
    std::vector<std::byte> bytes(32);
    for (std::size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i);
    const PresharedKey key = PresharedKey::from_bytes(bytes);
    EXPECT_TRUE(same(key, PresharedKey::from_text(hex_key())));
    EXPECT_TRUE(same(key, PresharedKey::from_text(" " + base64_key() + "\n")));
    bytes.back() = std::byte{0};
    EXPECT_FALSE(same(key, PresharedKey::from_bytes(bytes)));
}

TEST(PresharedKey, ThatIsShortIsRefused) {
    EXPECT_TRUE(
        contains(refusal_of([] { (void)PresharedKey::from_text(hex_key().substr(2)); }), "31 bytes is too short"));
    EXPECT_TRUE(contains(refusal_of([] { (void)PresharedKey::from_text(""); }), "0 bytes is too short"));
}

TEST(PresharedKey, ThatIsNoKeyIsRefusedWithoutRepeatingIt) {
    for (const std::string& text :
         {hex_key() + "0", hex_key() + "!", base64_key() + base64_key(), std::string("correct horse battery")}) {
        const std::string why = refusal_of([&] { (void)PresharedKey::from_text(text); });
        EXPECT_TRUE(contains(why, "hexadecimal or base64")) << why;
        EXPECT_FALSE(contains(why, text)) << why;
    }
}

TEST_F(KeyFile, ThatIsGeneratedIsReadBackByItsOwnerAlone) {
    PresharedKey::generate_file(path());
    struct stat about{};
    ASSERT_EQ(stat(path().c_str(), &about), 0);
    EXPECT_EQ(about.st_mode & 0777u, 0600u);
    const PresharedKey key = PresharedKey::from_file(path());
    EXPECT_TRUE(same(key, PresharedKey::from_file(path())));
    std::filesystem::remove(path());
    PresharedKey::generate_file(path());
    EXPECT_FALSE(same(key, PresharedKey::from_file(path())));
}

TEST_F(KeyFile, ThatIsThereIsNotOverwritten) {
    PresharedKey::generate_file(path());
    const PresharedKey key = PresharedKey::from_file(path());
    EXPECT_TRUE(contains(refusal_of([&] { PresharedKey::generate_file(path()); }), "not overwritten"));
    EXPECT_TRUE(same(key, PresharedKey::from_file(path())));
}

TEST_F(KeyFile, ThatOthersMayUseIsRefused) {
    for (const mode_t mode : {0640, 0604, 0620, 0602, 0644}) {
        write(hex_key(), mode);
        EXPECT_TRUE(contains(refusal_of([&] { (void)PresharedKey::from_file(path()); }), "chmod 600 " + path()));
    }
    write(hex_key(), 0400);
    (void)PresharedKey::from_file(path());
}

TEST_F(KeyFile, ThatIsMissingShortLongOrNoFileIsRefusedByItsName) {
    EXPECT_TRUE(contains(refusal_of([&] { (void)PresharedKey::from_file(path()); }), path() + ": No such file"));
    write("abcd");
    EXPECT_TRUE(
        contains(refusal_of([&] { (void)PresharedKey::from_file(path()); }), path() + ": a pre-shared key of 2"));
    write(std::string(4096, 'a'));
    EXPECT_TRUE(contains(refusal_of([&] { (void)PresharedKey::from_file(path()); }), "4096 bytes or more"));
    EXPECT_TRUE(contains(refusal_of([] { (void)PresharedKey::from_file("/dev/zero"); }), "no regular file"));
}

}  // namespace
}  // namespace lynx
