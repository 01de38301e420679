#include "discreet/data/table.h"

#include "discreet/base/cbor.h"

namespace discreet::data {

Digest digest_of(const Table& table) {
  Sha256 hash;
  hash.update(cbor::encode(cbor::array({"discreet-table-1", table.rows, table.columns.size()})));
  std::vector<double> numbers(table.rows);
  for (const Table::Column& column : table.columns) {
    hash.update(cbor::encode(
        cbor::array({column.name, cbor::array({column.words.begin(), column.words.end()})})));
    if (column.numbers == nullptr) continue;
    for (std::size_t row = 0; row < table.rows; ++row)
      numbers[row] = column.numbers[static_cast<std::ptrdiff_t>(row) * column.stride];
    hash.update({reinterpret_cast<const std::uint8_t*>(numbers.data()),
                 numbers.size() * sizeof(numbers[0])});
  }
  return hash.finish();
}

}  // namespace discreet::data
