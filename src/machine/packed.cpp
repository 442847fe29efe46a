// Frozen matrices of bf16 numbers in the layout in which oneDNN multiplies by them, which each product would otherwise make anew.

// Only the operators that are named here are declared: all of them would take most of the time that this file takes to compile.
#define AT_PER_OPERATOR_HEADERS
#include "products.h"

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/StorageImpl.h>

#include <cstdint>
#include <iterator>
#include <map>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <tuple>
#include <utility>

using at::Tensor;

namespace {

// The bytes that are kept at most: a small network has room. Plans of memory ask for them.
constexpr int64_t kMostBytes = int64_t{32} << 20;

// Where a matrix lies: its memory, the number in front of it, its rows and columns, and the numbers from one row to the next.
using Place = std::tuple<const c10::StorageImpl*, int64_t, int64_t, int64_t, int64_t>;

// What is known of a matrix.
struct Seen {
    // The memory's address is not given to another one as long as this is held.
    c10::weak_intrusive_ptr<c10::StorageImpl> memory;
    // libtorch's count of writes to the matrix.
    uint32_t version;
    // Undefined where there was no room.
    Tensor packed;
};

Tensor pack(const Tensor& weight) {
    using Signature = Tensor(const Tensor&, std::optional<c10::SymInt>);
    static const auto reorder =
        c10::Dispatcher::singleton().findSchemaOrThrow("mkldnn::_reorder_linear_weight", "").typed<Signature>();
    return reorder.call(weight, std::nullopt);
}

class Shelf {
public:
    Tensor packed(const Tensor& weight) {
        const Place place{weight.storage().unsafeGetStorageImpl(), weight.storage_offset(), weight.size(0), weight.size(1), weight.stride(0)};
        const auto version = weight.unsafeGetTensorImpl()->version_counter().current_version();
        {
            const std::shared_lock<std::shared_mutex> reading(lock);
            const auto found = all.find(place);
            if (found != all.end() && found->second.version == version) return of(found->second, weight);
        }
        const std::unique_lock<std::shared_mutex> writing(lock);
        const auto found = all.find(place);
        if (found != all.end()) {
            // Another thread may have packed it meanwhile.
            if (found->second.version == version) return of(found->second, weight);
            forget(found);
        }
        forget_dead();
        Seen seen{weight.storage().getWeakStorageImpl(), version, Tensor()};
        if (bytes + bytes_of(place) <= kMostBytes) {
            seen.packed = pack(weight);
            bytes += bytes_of(place);
        }
        return of(all.emplace(place, std::move(seen)).first->second, weight);
    }

private:
    using All = std::map<Place, Seen>;

    static Tensor of(const Seen& seen, const Tensor& weight) { return seen.packed.defined() ? seen.packed : weight; }

    static int64_t bytes_of(const Place& place) { return 2 * std::get<2>(place) * std::get<3>(place); }

    All::iterator forget(All::iterator at) {
        if (at->second.packed.defined()) bytes -= bytes_of(at->first);
        return all.erase(at);
    }

    void forget_dead() {
        for (auto at = all.begin(); at != all.end();) at = at->second.memory.expired() ? forget(at) : std::next(at);
    }

    std::shared_mutex lock;
    All all;
    int64_t bytes = 0;
};

}  // namespace

extern "C" int64_t bella_most_packed() { return kMostBytes; }

Tensor bella_packed(const Tensor& weight) {
    // Never destroyed: threads may still compute when the program ends.
    static Shelf* const shelf = new Shelf;
    // A tensor of inference mode has no count of writes.
    return weight.is_inference() ? weight : shelf->packed(weight);
}
