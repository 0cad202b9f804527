#include "run/checkpoint/restore/init.h"

#include <algorithm>

namespace orrery {
namespace {

/// The number of a value's random stream. It depends on the name alone, so that it is the same on every mesh.
int64_t stream_of(const std::string& name) {
    uint64_t hash = 0xcbf29ce484222325u;  // FNV-1a hash of the name
    for (unsigned char c : name) hash = (hash ^ c) * 0x100000001b3u;
    return static_cast<int64_t>(hash >> 1);
}

/// The kernel that fills a value: `full`, or `random`, whose one input u32[] is the seed.
KernelSpec initial_kernel(const Value& value, const TensorType& local, const Shape& offset) {
    const std::string kind = value.init.text("kind", "zeros");
    KernelSpec spec;
    spec.outputs = {local};
    spec.attributes.set("shape", local.shape);
    if (kind == "zeros" || kind == "ones") {
        spec.op = "full";
        spec.attributes.set("value", kind == "ones" ? value.init.number("scale", 1) : 0.0);
        spec.attributes.set("dtype", std::string(name_of(local.dtype)));
        return spec;
    }
    spec.op = "random";
    spec.attributes.set("kind", kind);
    spec.attributes.set("scale", value.init.number("scale", 1));
    spec.attributes.set("stream", stream_of(value.name));
    spec.attributes.set("global_shape", value.type.shape);
    spec.attributes.set("offset", offset);
    spec.inputs = {{DType::u32, {}}};
    return spec;
}

}  // namespace

void draw_initial(Device& device, const Value& value, const Tensor& local, const Shape& offset, uint64_t seed) {
    const KernelSpec spec = initial_kernel(value, {local.dtype, local.shape}, offset);
    const auto kernel = device.prepare(spec);
    Memory word = device.allocate(64, MemoryKind::device);
    Memory scratch = device.allocate(std::max<int64_t>(64, kernel->scratch_bytes()), MemoryKind::device);
    const auto drawn = static_cast<uint32_t>(seed ^ (seed >> 32));
    device.copy(0, word.data, &drawn, sizeof drawn);
    std::vector<Tensor> operands{local};
    if (!spec.inputs.empty()) operands.insert(operands.begin(), {word.data, DType::u32, {}});
    device.launch(0, *kernel, operands, scratch.data);
    device.synchronize(0);
    device.release(scratch);
    device.release(word);
}

}  // namespace orrery
