// Properties of a ledger's readers over SQLite files that somebody altered (edited_database.h). The
// first byte chooses the reader:
//   verify  holds only if a plain SQLite reader sees the honest rows
//   trace   of a contribution
//   prove   an entry
// Each throws kMalformed, kInvalidInput or kIoError, and the file is not written.
#include "tests/fuzz/edited_database.h"
#include "tests/fuzz/fuzz.h"
#include "tests/fuzz/honest_ledger.h"

using namespace discreet;
using namespace discreet::ledger;

namespace {

struct Honest {
  fuzz::HonestLedger ledger;
  Bytes bytes = ledger.file.bytes();
  fuzz::EditedDatabase database{bytes};
  Bytes rows = fuzz::EditedDatabase::rows_of(bytes, "leaf");
};
const Honest& honest() {
  static const Honest h;
  return h;
}

}  // namespace

std::vector<Bytes> fuzz::seeds() {
  std::vector<Bytes> out;
  for (std::uint8_t reader = 0; reader < 4; ++reader)
    for (std::uint8_t kind = 0; kind < 14; ++kind)
      for (std::uint8_t table = 0; table < 3; ++table)
        out.push_back({reader, kind, static_cast<std::uint8_t>(table + 3), 0, 1, 2, 2, 7, 0xff});
  return out;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  static const fuzz::File file("ledger");
  const Bytes altered = honest().database.edited({data + 1, size - 1});
  file.put(altered);
  fuzz::throws_only({ErrorCode::kMalformed, ErrorCode::kInvalidInput, ErrorCode::kIoError}, [&] {
    if (data[0] % 4 == 0) {
      Store store(file.path(), Store::Mode::kRead);
      trace(store, honest().ledger.withdrawn());
      tree_of(store);
    } else if (data[0] % 4 == 1) {
      prove_entry(file.path(), 3);
    } else {
      VerifyOptions options;
      options.key = honest().ledger.key();
      options.checkpoint = honest().ledger.note;
      options.attestations = data[0] % 4 == 2;
      if (verify(file.path(), options).ok)
        fuzz::require(altered == honest().bytes ||
                          fuzz::EditedDatabase::rows_of(altered, "leaf") == honest().rows,
                      "an altered ledger verifies");
    }
  });
  fuzz::require(file.bytes() == altered, "a reader wrote to the file");
  return 0;
}
