#include "discreet/data/dataset.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>

#include "discreet/base/error_testing.h"
#include "discreet/data/files_testing.h"

namespace discreet::data {
namespace {

CsvSchema schema() {
  CsvSchema s;
  s.numeric = {{"age", {0, 100}}, {"income", {0, 1000}}};
  s.categorical = {{"town", {{"Bern", "Basel"}, false}}};
  s.label = {"bought", {"no", "yes"}, 0, 0};
  return s;
}

TEST(Csv, TurnsColumnsIntoFeaturesByTheirDeclaration) {
  const Folder folder;
  write_gzip(folder / "d.csv",
             "id,age,town,bought,income\n1,50,Bern,yes,250\n2,\"0\",\"Basel\",no,5000\n");
  const Dataset data = read_csv(folder / "d.csv", schema());
  EXPECT_EQ(data.rows, 2u);
  EXPECT_EQ(data.feature_names,
            (std::vector<std::string>{"age", "town=Bern", "town=Basel", "income"}));
  EXPECT_EQ(data.x, (std::vector<float>{0, 1, 0, -0.5f, -1, 0, 1, 1}));  // 5000 counts as 1000
  EXPECT_EQ(data.label, (std::vector<std::uint32_t>{1, 0}));
  EXPECT_EQ(data.classes, 2u);
}

TEST(Csv, ARecordsFeaturesDependOnThatRecordAlone) {
  const Folder folder;
  write_text(folder / "a.csv", "age,income,town,bought\n10,20,Bern,no\n30,40,Basel,yes\n");
  write_text(folder / "b.csv", "age,income,town,bought\n10,20,Bern,no\n99,999,Bern,no\n");
  const Dataset a = read_csv(folder / "a.csv", schema()), b = read_csv(folder / "b.csv", schema());
  EXPECT_TRUE(std::equal(a.x.begin(), a.x.begin() + 4, b.x.begin()));
  EXPECT_NE(a.digest, b.digest);
  EXPECT_EQ(a.digest, read_csv(folder / "a.csv", schema()).digest);
}

TEST(Csv, NamesFileLineAndColumnOfABadRowOrCountsIt) {
  const Folder folder;
  const std::string header = "age,income,town,bought\n";
  const auto says = [&](const std::string& row) {
    write_text(folder / "d.csv", header + "1,2,Bern,no\n" + row + "\n3,4,Basel,yes\n");
    const Dataset rest = read_csv(folder / "d.csv", schema(), BadRow::kSkip);
    EXPECT_EQ(rest.rows, 2u) << row;
    EXPECT_EQ(rest.skipped.size(), 1u) << row;
    EXPECT_EQ(rest.x.size(), 8u);
    EXPECT_EQ(rest.label.size(), 2u);
    const std::string sentence =
        refusal([&] { read_csv(folder / "d.csv", schema()); }, ErrorCode::kMalformed);
    return sentence.substr(sentence.find("d.csv:") + 6);
  };
  EXPECT_SAYS(says("x,2,Bern,no"), "3: column age: 'x' is not a finite number");
  EXPECT_SAYS(says("1,,Bern,no"), "3: column income: is empty");
  EXPECT_SAYS(says("1,nan,Bern,no"), "3: column income: 'nan' is not a finite number");
  EXPECT_SAYS(says("1,1e999,Bern,no"), "3: column income: '1e999' is not a finite number");
  EXPECT_SAYS(says("1,2,Paris,no"), "3: column town: 'Paris' is not in the declared vocabulary");
  EXPECT_SAYS(says("1,2,Bern,maybe"),
              "3: column bought: 'maybe' is not one of the declared classes");
  EXPECT_SAYS(says("1,2,Bern"), "3: found 3 fields; the header has 4");
  EXPECT_SAYS(says("1,2,\"Bern,no"), "3: a quote is not closed on its line");
  EXPECT_SAYS(says("1,2,\"Bern\"x,no"), "3: text follows a closing quote");
  EXPECT_SAYS(says("1,2,\xff,no"), "3: is not UTF-8");
}

TEST(Csv, TakesOtherWordsOnlyWhereAFeatureIsDeclaredForThem) {
  const Folder folder;
  write_text(folder / "d.csv", "age,income,town,bought\n1,2,Paris,no\n");
  CsvSchema s = schema();
  s.categorical.at("town").other = true;
  const Dataset data = read_csv(folder / "d.csv", s);
  EXPECT_EQ(data.features, 5u);
  EXPECT_EQ(data.x[4], 1);
}

// A file as people have it and the same file cleaned by hand are the same records.
TEST(Csv, ReadsAFileWithoutHeaderWithSpacesAndOtherSpellingsAsTheCleanOne) {
  const Folder folder;
  write_text(folder / "raw.csv", " 10, 20, Bern, no.\n30 ,\t40, \"Basel\" , yes\n\n");
  write_text(folder / "clean.csv", "age,income,town,bought\n10,20,Bern,no\n30,40,Basel,yes\n");
  CsvSchema raw = schema();
  raw.format = {',', true, {"age", "income", "town", "bought"}, {{"bought", {{"no.", "no"}}}}, {}};
  const Dataset clean = read_csv(folder / "clean.csv", schema());
  EXPECT_EQ(read_csv(folder / "raw.csv", raw).digest, clean.digest);
  // A line of these names is a header line, in whatever order.
  write_text(folder / "both.csv", "town,bought, age,income\nBern,no,10,20\nBasel,yes,30,40\n");
  const Dataset both = read_csv(folder / "both.csv", raw);
  EXPECT_EQ(both.rows, 2u);
  EXPECT_EQ(both.feature_names[0], "town=" + schema().categorical.at("town").vocabulary[0]);
  // Without the names, or without trimming, the sentence says which key is missing.
  const auto says = [&](const std::function<void(CsvFormat&)>& change, ErrorCode code) {
    CsvSchema s = raw;
    change(s.format);
    return refusal([&] { read_csv(folder / "raw.csv", s); }, code);
  };
  EXPECT_SAYS(says([](auto& f) { f.header.clear(); }, ErrorCode::kInvalidDpConfig),
              "looks like a record: name its 4 columns in data.header");
  EXPECT_SAYS(says([](auto& f) { f.trim = false; }, ErrorCode::kMalformed), "set data.trim: true");
  EXPECT_SAYS(says([](auto& f) { f.map.clear(); }, ErrorCode::kMalformed),
              "raw.csv:1: column bought: 'no.' is not one of the declared classes; add it to "
              "data.classes, or map it: data.map: {bought: {\"no.\": \"no\"}}");
}

TEST(Csv, AMissingNumberIsTheMiddleOfItsBoundsAndAMissingWordNoFeature) {
  const Folder folder;
  write_text(folder / "d.csv", "age,income,town,bought\n?,20,?,no\n30,,Basel,yes\n");
  CsvSchema s = schema();
  const std::string unread = refusal([&] { read_csv(folder / "d.csv", s); }, ErrorCode::kMalformed);
  EXPECT_SAYS(unread, "'?' is not a finite number; if that stands for a missing value, list it in");
  s.format.missing = {"?", ""};
  const Dataset data = read_csv(folder / "d.csv", s);
  EXPECT_EQ(data.x[0], 0);
  EXPECT_EQ(data.x[2] + data.x[3], 0);
  EXPECT_EQ(data.x[data.features + 1], 0);
  s.categorical.at("town").other = true;
  EXPECT_EQ(read_csv(folder / "d.csv", s).x[4], 1);
  s.categorical.at("town").vocabulary.emplace_back("?");
  EXPECT_EQ(read_csv(folder / "d.csv", s).x[4], 1);
  write_text(folder / "d.csv", "age,income,town,bought\n1,20,Bern,?\n");
  EXPECT_SAYS(refusal([&] { read_csv(folder / "d.csv", s); }, ErrorCode::kMalformed),
              "column bought: the label is missing");
}

// 2^64 is a multiple of 16, so the last of the eight bytes decides.
TEST(Csv, AHashedColumnNeedsNoVocabulary) {
  const Folder folder;
  write_text(folder / "d.csv", "town,bought\nBern,no\n?,yes\nBern,yes\n");
  CsvSchema s;
  s.hashed = {{"town", 16}};
  s.label = schema().label;
  s.format.missing = {"?"};
  const Dataset data = read_csv(folder / "d.csv", s);
  ASSERT_EQ(data.features, 16u);
  EXPECT_EQ(data.feature_names[3], "town#3");
  const Digest digest = sha256(bytes_of("Bern"));
  for (std::size_t k = 0; k < 16; ++k) {
    EXPECT_EQ(data.x[k], k == digest[7] % 16 ? 1 : 0);
    EXPECT_EQ(data.x[16 + k], 0);
    EXPECT_EQ(data.x[32 + k], data.x[k]);
  }
}

TEST(Csv, ReadsNumbersToPredictWithDeclaredBounds) {
  const Folder folder;
  write_text(folder / "d.csv", "age;price\n50;75\n0;1000\n");
  CsvSchema s;
  s.format.separator = ';';
  s.numeric = {{"age", {0, 100}}};
  s.label = {"price", {}, 50, 100};
  const Dataset data = read_csv(folder / "d.csv", s);
  EXPECT_EQ(data.classes, 0u);
  EXPECT_EQ(data.target, (std::vector<float>{0, 1}));
}

TEST(Csv, RefusesASchemaThatDoesNotFitAndNamesTheNearestColumn) {
  const Folder folder;
  write_text(folder / "d.csv", "age,income,town,bought\n1,2,Bern,no\n");
  const auto says = [&](const std::function<void(CsvSchema&)>& change) {
    CsvSchema s = schema();
    change(s);
    return refusal([&] { read_csv(folder / "d.csv", s); }, ErrorCode::kInvalidDpConfig);
  };
  EXPECT_NE(says([](CsvSchema& s) {
              s.numeric["incone"] = {0, 1};
            }).find("did you mean income?"),
            std::string::npos);
  EXPECT_NE(says([](CsvSchema& s) {
              s.numeric["age"] = {5, 5};
            }).find("not from the data"),
            std::string::npos);
  EXPECT_NE(says([](CsvSchema& s) { s.categorical["town"].vocabulary = {"a", "a"}; }), "");
  EXPECT_NE(says([](CsvSchema& s) { s.label.name = "age"; }), "");
  EXPECT_NE(says([](CsvSchema& s) { s.label.name = ""; }), "");
  write_text(folder / "empty.csv", "");
  EXPECT_NE(refusal([&] { read_csv(folder / "empty.csv", schema()); }, ErrorCode::kMalformed), "");
}

// ---------------------------------------------------------------- IDX

std::string idx(std::uint32_t magic, const std::vector<std::uint32_t>& shape,
                const std::string& bytes) {
  std::string out;
  const auto add = [&](std::uint32_t v) {
    for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(v >> shift);
  };
  add(magic);
  for (const std::uint32_t length : shape) add(length);
  return out + bytes;
}

TEST(Idx, ReadsImagesAndLabels) {
  const Folder folder;
  write_gzip(folder / "x", idx(0x803, {2, 1, 2}, std::string("\x00\xff\x33\x66", 4)));
  write_text(folder / "y", idx(0x801, {2}, std::string("\x01\x00", 2)));
  const Dataset data = read_idx(folder / "x", folder / "y", 2);
  EXPECT_EQ(data.rows, 2u);
  EXPECT_EQ(data.features, 2u);
  EXPECT_EQ(data.x, (std::vector<float>{0, 1, 0.2f, 0.4f}));
  EXPECT_EQ(data.label, (std::vector<std::uint32_t>{1, 0}));
}

TEST(Idx, RefusesWhatIsCutTooLongOrOfAnotherKind) {
  const Folder folder;
  const std::string images = idx(0x803, {2, 1, 2}, "abcd"),
                    labels = idx(0x801, {2}, std::string("\x01\x00", 2));
  const auto refused = [&](const std::string& x, const std::string& y, std::size_t classes = 2) {
    write_text(folder / "x", x);
    write_text(folder / "y", y);
    return refusal([&] { read_idx(folder / "x", folder / "y", classes); },
                   classes < 2 ? ErrorCode::kInvalidDpConfig : ErrorCode::kMalformed);
  };
  EXPECT_NE(refused(images.substr(0, images.size() - 1), labels).find("truncated by 1 bytes"),
            std::string::npos);
  EXPECT_NE(refused(images + "x", labels).find("bytes follow"), std::string::npos);
  EXPECT_NE(refused(labels, labels).find("magic number"), std::string::npos);
  EXPECT_NE(refused(images, idx(0x801, {3}, "\x01\x01\x01")).find("found 3 labels for 2 images"),
            std::string::npos);
  EXPECT_NE(refused(images, idx(0x801, {2}, "\x01\x07")).find("label 7 of row 1"),
            std::string::npos);
  EXPECT_NE(refused(images, labels, 1), "");
  // Nor does one that promises 4·10^9 pixels of no image, whose names would not fit.
  EXPECT_NE(refused(idx(0x803, {0, 65535, 65535}, ""), idx(0x801, {0}, "")).find("at most"),
            std::string::npos);
  EXPECT_NE(
      refused(idx(0x803, {0xffffffff, 0xffffffff, 0xffffffff}, ""), idx(0x801, {0xffffffff}, "")),
      "");
  // A header that promises 2^60 bytes costs no memory.
  EXPECT_NE(refused(idx(0x803, {2, 0x20000000, 0x40000000}, "abcd"), labels), "");
}

TEST(Idx, ReadsMnistWhereItIs) {
  const char* folder = std::getenv("MNIST");
  if (folder == nullptr) GTEST_SKIP() << "set MNIST to the directory of the four files";
  const std::filesystem::path path = folder;
  const Dataset data =
      read_idx(path / "t10k-images-idx3-ubyte.gz", path / "t10k-labels-idx1-ubyte.gz", 10);
  EXPECT_EQ(data.rows, 10000u);
  EXPECT_EQ(data.features, 784u);
  EXPECT_EQ(data.label[0], 7u);
}

// ---------------------------------------------------------------- NumPy

template <class T>
std::string npy(const std::string& type, const std::string& shape, const std::vector<T>& values) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header += std::string(118 - header.size() % 64, ' ') + "\n";
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size() & 255);
  out += static_cast<char>(header.size() >> 8);
  out += header;
  out.append(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T));
  return out;
}

TEST(Npy, ReadsFeaturesWithDeclaredBoundsAndLabels) {
  const Folder folder;
  write_text(folder / "x.npy", npy<float>("<f4", "(2, 2)", {0, 5, 10, 20}));
  write_text(folder / "y.npy", npy<std::int64_t>("<i8", "(2,)", {1, 0}));
  const Dataset data = read_npy(folder / "x.npy", {0, 10}, folder / "y.npy", 2);
  EXPECT_EQ(data.x, (std::vector<float>{-1, 0, 1, 1}));
  EXPECT_EQ(data.label, (std::vector<std::uint32_t>{1, 0}));
}

TEST(Npy, LeavesOutOrRefusesRowsThatAreNotFinite) {
  const Folder folder;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  write_text(folder / "x.npy", npy<double>("<f8", "(3, 2)", {0, 1, 1, nan, 1, 0}));
  write_text(folder / "y.npy", npy<std::uint8_t>("|u1", "(3,)", {0, 1, 1}));
  EXPECT_NE(refusal(
                [&] {
                  read_npy(folder / "x.npy", {0, 1}, folder / "y.npy", 2);
                },
                ErrorCode::kMalformed)
                .find("row 1, column 1 is nan"),
            std::string::npos);
  const Dataset data = read_npy(folder / "x.npy", {0, 1}, folder / "y.npy", 2, BadRow::kSkip);
  EXPECT_EQ(data.rows, 2u);
  EXPECT_EQ(data.skipped.size(), 1u);
  EXPECT_EQ(data.label, (std::vector<std::uint32_t>{0, 1}));
}

TEST(Npy, RefusesOtherTypesOrdersAndShapes) {
  const Folder folder;
  write_text(folder / "y.npy", npy<std::int64_t>("<i8", "(2,)", {1, 0}));
  const auto refused = [&](const std::string& x) {
    write_text(folder / "x.npy", x);
    return refusal(
        [&] {
          read_npy(folder / "x.npy", {0, 1}, folder / "y.npy", 2);
        },
        ErrorCode::kMalformed);
  };
  EXPECT_NE(refused(npy<float>("<f2", "(2, 2)", {0, 0, 0, 0})).find("<f2"), std::string::npos);
  EXPECT_NE(refused(npy<float>("<f4", "(4,)", {0, 0, 0, 0})), "");
  EXPECT_NE(
      refused(npy<float>("<f4", "(3, 2)", {0, 0, 0, 0, 0, 0})).find("found 3 rows for 2 labels"),
      std::string::npos);
  EXPECT_NE(refused(npy<float>("<f4", "(2, 2)", {0, 0, 0})).find("truncated"), std::string::npos);
  std::string fortran = npy<float>("<f4", "(2, 2)", {0, 0, 0, 0});
  fortran.replace(fortran.find("False"), 5, " True");
  EXPECT_NE(refused(fortran).find("Fortran"), std::string::npos);
  EXPECT_NE(refused("hello"), "");
  EXPECT_NE(refused(npy<float>("<f4", "(2, 99999999999999999999)", {0})), "");
  // Signs, other brackets and nothing are no shape.
  for (const char* shape : {"(-1, 2)", "(2, -2)", "[2, 2]", "(2 2)", "(2,, 2)", "(+2, 2)", "(2, 2",
                            "(2.0, 2)", "(0x2, 2)", "2, 2"})
    EXPECT_NE(refused(npy<float>("<f4", shape, {0, 0, 0, 0})).find("shape"), std::string::npos)
        << shape;
  // A row of 2^30 numbers is not allocated before it is there.
  write_text(folder / "y.npy", npy<std::int64_t>("<i8", "(1,)", {1}));
  EXPECT_NE(refused(npy<float>("<f4", "(1, 1073741824)", {0})).find("at most"), std::string::npos);
  write_text(folder / "y.npy", npy<std::int64_t>("<i8", "(999999999999999,)", {1}));
  EXPECT_NE(refused(npy<float>("<f4", "(1, 2)", {0, 0})).find("truncated"), std::string::npos);
}

}  // namespace
}  // namespace discreet::data
