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
    EVP_MAC_free(hmac);  // the context has its own reference to the algorithm
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
constexpr size_t run_bytes = 4096;

[[gnu::target("sse4.2")]] uint64_t next(uint64_t crc, const std::byte* at) {
    uint64_t word;
    std::memcpy(&word, at, 8);
    return _mm_crc32_u64(crc, word);
}

/// Maps a CRC to the CRC after a run of zeros. The map is linear over GF(2), so one table per byte of the CRC suffices.
class OverZeros {
public:
    OverZeros() {
        const std::array<std::byte, run_bytes> zeros{};
        for (size_t bit = 0; bit < 32; ++bit) {
            const uint32_t of_bit = ~crc32c_portable(zeros, ~(uint32_t{1} << bit));
            for (size_t value = 0; value < 256; ++value)
                if (value >> (bit % 8) & 1) tables_[bit / 8][value] ^= of_bit;
        }
    }
    uint32_t operator()(uint64_t crc) const {
        return tables_[0][crc & 255] ^ tables_[1][crc >> 8 & 255] ^ tables_[2][crc >> 16 & 255] ^
               tables_[3][crc >> 24 & 255];
    }

private:
    std::array<std::array<uint32_t, 256>, 4> tables_{};
};

/// Computes three CRCs at a time, since the instruction takes three cycles and one can start per cycle. The CRC of two
/// concatenated texts is the first CRC mapped over as many zeros as the second has bytes, xor the second CRC.
[[gnu::target("sse4.2")]] uint32_t crc32c_sse42(std::span<const std::byte> bytes, uint32_t before) {
    uint64_t crc = ~before;
    const std::byte* at = bytes.data();
    size_t left = bytes.size();
    for (; left >= 3 * run_bytes; left -= 3 * run_bytes, at += 3 * run_bytes) {
        static const OverZeros over_zeros;  // made on first use, since few texts are long enough to need the tables
        uint64_t second = 0, third = 0;
        for (size_t i = 0; i < run_bytes; i += 8) {
            crc = next(crc, at + i);
            second = next(second, at + run_bytes + i);
            third = next(third, at + 2 * run_bytes + i);
        }
        crc = over_zeros(over_zeros(crc) ^ second) ^ third;
    }
    for (; left >= 8; left -= 8, at += 8) crc = next(crc, at);
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
