#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace orrery {

inline std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

class Sha256 {
public:
    Sha256();
    ~Sha256();
    Sha256(Sha256&&) noexcept;
    Sha256& operator=(Sha256&&) noexcept;

    void update(std::span<const std::byte> bytes);
    void update(std::string_view text) { update(bytes_of(text)); }
    /// Finishes the hash and returns 64 hexadecimal digits. Call once.
    std::string hex();

private:
    struct Free {
        void operator()(void* context) const;
    };
    std::unique_ptr<void, Free> context_;
};

std::string sha256(std::span<const std::byte> bytes);
std::string sha256(std::string_view text);

/// HMAC-SHA256 of many messages with one key, which is processed once.
class Hmac {
public:
    explicit Hmac(std::string_view key);
    ~Hmac();
    Hmac(Hmac&&) noexcept;
    Hmac& operator=(Hmac&&) noexcept;
    /// The HMAC of the concatenated parts; 32 raw bytes.
    std::array<char, 32> of(std::initializer_list<std::string_view> parts);

private:
    struct Free {
        void operator()(void* context) const;
    };
    std::unique_ptr<void, Free> context_;
};

std::string hmac_sha256(std::string_view key, std::string_view message);
/// Compares secrets in a time that depends only on their length.
bool same_secret(std::string_view a, std::string_view b);

/// CRC-32C (Castagnoli). `before`: the CRC of the bytes before these. Uses SSE4.2 if the CPU has it.
uint32_t crc32c(std::span<const std::byte> bytes, uint32_t before = 0);
/// Computes crc32c() with tables instead of SSE4.2; also called by tests.
uint32_t crc32c_portable(std::span<const std::byte> bytes, uint32_t before = 0);

}  // namespace orrery
