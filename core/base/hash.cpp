#include "base/hash.h"

#include <openssl/core_names.h>
#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/params.h>

#include <array>
#include <cstring>

#include "base/text.h"
#include "orrery/error.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace orrery {

namespace {
void need(bool ok, const char* what) {
    if (!ok) throw Error(std::string("openssl refused ") + what, Fault::failed);
}

constexpr std::array<uint32_t, 256> make_table() {
    std::array<uint32_t, 256> table{};
    for (uint32_t i = 0; i < 256; ++i) {
        uint32_t value = i;
        for (int bit = 0; bit < 8; ++bit) value = (value & 1) ? (value >> 1) ^ 0x82f63b78u : value >> 1;
        table[i] = value;
    }
    return table;
}
constexpr auto crc_table = make_table();
}  // namespace

void Sha256::Free::operator()(void* context) const { EVP_MD_CTX_free(static_cast<EVP_MD_CTX*>(context)); }

Sha256::Sha256() : context_(EVP_MD_CTX_new()) {
    need(context_ && EVP_DigestInit_ex(static_cast<EVP_MD_CTX*>(context_.get()), EVP_sha256(), nullptr) == 1,
         "sha-256");
}
Sha256::~Sha256() = default;
Sha256::Sha256(Sha256&&) noexcept = default;
Sha256& Sha256::operator=(Sha256&&) noexcept = default;

void Sha256::update(std::span<const std::byte> bytes) {
    need(EVP_DigestUpdate(static_cast<EVP_MD_CTX*>(context_.get()), bytes.data(), bytes.size()) == 1, "sha-256");
}

std::string Sha256::hex() {
    std::string raw(32, '\0');
    unsigned size = 0;
    need(EVP_DigestFinal_ex(static_cast<EVP_MD_CTX*>(context_.get()), reinterpret_cast<unsigned char*>(raw.data()),
                            &size) == 1 &&
             size == 32,
         "sha-256");
    return orrery::hex(raw);
}

std::string sha256(std::span<const std::byte> bytes) {
    Sha256 digest;
    digest.update(bytes);
    return digest.hex();
}
std::string sha256(std::string_view text) { return sha256(bytes_of(text)); }

Hmac::Hmac(std::string_view key) {
    EVP_MAC* hmac = EVP_MAC_fetch(nullptr, "HMAC", nullptr);
    need(hmac != nullptr, "hmac");
    auto* context = EVP_MAC_CTX_new(hmac);
    EVP_MAC_free(hmac);  // the context has its own reference
    context_.reset(context);
    char digest[] = "SHA256";
    const OSSL_PARAM params[] = {OSSL_PARAM_construct_utf8_string("digest", digest, 0), OSSL_PARAM_construct_end()};
    const auto* bytes = reinterpret_cast<const unsigned char*>(key.data());
    need(context != nullptr && EVP_MAC_init(context, bytes, key.size(), params) == 1, "hmac");
}
Hmac::~Hmac() = default;
Hmac::Hmac(Hmac&&) noexcept = default;
Hmac& Hmac::operator=(Hmac&&) noexcept = default;
void Hmac::Free::operator()(void* context) const { EVP_MAC_CTX_free(static_cast<EVP_MAC_CTX*>(context)); }

std::array<char, 32> Hmac::of(std::initializer_list<std::string_view> parts) {
    auto* context = static_cast<EVP_MAC_CTX*>(context_.get());
    std::array<char, 32> mac{};
    bool good = EVP_MAC_init(context, nullptr, 0, nullptr) == 1;
    for (const std::string_view part : parts)
        good = good && EVP_MAC_update(context, reinterpret_cast<const unsigned char*>(part.data()), part.size()) == 1;
    size_t size = 0;
    good = good && EVP_MAC_final(context, reinterpret_cast<unsigned char*>(mac.data()), &size, mac.size()) == 1;
    need(good && size == mac.size(), "hmac");
    return mac;
}

std::string hmac_sha256(std::string_view key, std::string_view message) {
    std::string raw(32, '\0');
    unsigned size = 0;
    const auto* bytes = reinterpret_cast<const unsigned char*>(message.data());
    need(HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), bytes, message.size(),
              reinterpret_cast<unsigned char*>(raw.data()), &size) != nullptr &&
             size == 32,
         "hmac");
    return raw;
}

bool same_secret(std::string_view a, std::string_view b) {
    return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t before) {
    uint32_t crc = ~before;
    for (std::byte byte : bytes) crc = crc_table[(crc ^ static_cast<uint32_t>(byte)) & 255] ^ (crc >> 8);
    return ~crc;
}

#if defined(__x86_64__)
namespace {
[[gnu::target("sse4.2")]] uint32_t crc32c_sse42(std::span<const std::byte> bytes, uint32_t before) {
    uint64_t crc = ~before;
    const std::byte* at = bytes.data();
    size_t left = bytes.size();
    for (; left >= 8; left -= 8, at += 8) {
        uint64_t word;
        std::memcpy(&word, at, 8);
        crc = _mm_crc32_u64(crc, word);
    }
    auto tail = static_cast<uint32_t>(crc);
    for (; left > 0; --left, ++at) tail = _mm_crc32_u8(tail, static_cast<uint8_t>(*at));
    return ~tail;
}
}  // namespace

uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) {
    static const bool fast = __builtin_cpu_supports("sse4.2");
    return fast ? crc32c_sse42(bytes, before) : crc32c_portable(bytes, before);
}
#else
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before) { return crc32c_portable(bytes, before); }
#endif

}  // namespace orrery
