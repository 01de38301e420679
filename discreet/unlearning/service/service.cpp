#include "discreet/unlearning/service/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "discreet/base/error.h"
#include "discreet/base/text/utf8.h"
#include "discreet/ledger/verify.h"
#include "discreet/numerics/sum.h"
#include "discreet/unlearning/require_impl.h"
#include "discreet/unlearning/saved_impl.h"
#include "discreet/unlearning/service/learner_impl.h"
#include "discreet/unlearning/service/store_impl.h"

namespace discreet::unlearning {
namespace {

constexpr const char* kOp = "unlearn";
constexpr std::size_t kRowsPerCommit = 512;

void require_text(const char* what, std::string_view text, std::size_t most) {
  if (text.empty() || text.size() > most || find_bad_utf8(bytes_of(text))) {
    invalid_input(kOp, "the {} has {} bytes; it must be 1 to {} bytes of UTF-8", what, text.size(),
                  most);
  }
}

// The bytes of a row in a request's digest.
Digest chained(const Digest& before, const Row& row) {
  return Sha256()
      .update(before)
      .update(cbor::encode(cbor::array({row.subject, packed(row.x), row.y})))
      .finish();
}

Bytes encoded(const Publication& p) {
  return cbor::encode(cbor::map({{"type", "unlearning/publication/1"},
                                 {"parameters", packed(p.release.parameters)},
                                 {"sigma", p.release.sigma},
                                 {"residual_bound", p.release.residual_bound},
                                 {"guarantee", p.release.guarantee},
                                 {"ready", p.ready}}));
}

Publication publication_of(ByteView bytes) {
  return restored(bytes, "unlearning/publication/1", [](const cbor::Value& s) {
    return Publication{
        Release{unpacked<double>(s.at("parameters").as_bytes()), s.at("sigma").as_float(),
                s.at("residual_bound").as_float(), std::string(s.at("guarantee").as_text())},
        s.at("ready").as_bool()};
  });
}

}  // namespace

struct Service::Impl {
  explicit Impl(const std::filesystem::path& path, Noise source)
      : store(path, ModelStore::Mode::kOpen), noise(std::move(source)) {
    load();
  }
  ~Impl() {
    try {  // so that the ledger need not be read again
      if (store.number("confirmed") != confirmed) {
        store.transact([&] { store.put_number("confirmed", confirmed); });
      }
    } catch (...) {
    }
  }

  Bytes value(std::string_view name) {
    auto found = store.get(name);
    if (!found) {
      malformed("unlearn store", "there is no {}", name);
    }
    return std::move(*found);
  }

  void load() {
    const Bytes name = value("model");
    model.assign(name.begin(), name.end());
    genesis = value("genesis");
    state = value("state");
    if (const auto bytes = store.get("form")) form = decode_record_form(*bytes);
    calibration = store.number("calibration");
    generation = store.number("generation");
    next_id = store.number("next_id");
    deletions = store.number("deletions");
    confirmed = store.number("confirmed");
    chained = 0;
    chain = {};
    published.reset();
    if (const auto bytes = store.get("publication")) published = publication_of(*bytes);
    learner.emplace(restored_learner(state, noise("open")));
    store.each_record([&](RecordId id, std::string_view, const std::vector<double>& row) {
      if (row.size() != dimension_of(*learner) + 1) {
        malformed("unlearn store", "record {} has {} values; the model expects {}", id, row.size(),
                  dimension_of(*learner) + 1);
      }
      put_back(*learner, id, {row.data(), row.size() - 1}, row.back());
    });
    if (dimension_of(*learner) < (form.intercept ? 2 : 1) ||
        (form.columns && feature_names(*form.columns).size() != features())) {
      malformed("unlearn store", "the columns belong to another model than the store");
    }
    if (published && published->release.parameters.size() != dimension_of(*learner)) {
      malformed("unlearn store", "the publication belongs to another model than the store");
    }
    stale = false;
  }

  // Changes memory and file together. After a failure memory is read again.
  void change(const std::function<void()>& work) {
    stale = true;
    store.transact([&] {
      work();
      Bytes now = saved(*learner);
      if (now != state) {
        store.put("state", now);
        state = std::move(now);
      }
      if (confirmed != store.number("confirmed")) store.put_number("confirmed", confirmed);
    });
    stale = false;
  }
  void require_fresh() {
    if (stale) load();
  }

  Learner beginning(std::string_view event) const {
    // What a transcript has released stays released.
    const auto* erm = learner ? std::get_if<ErmEngine>(&*learner) : nullptr;
    const bool carries = erm != nullptr && erm->options().guarantee == Guarantee::kTranscript;
    return restored_learner(carries ? state : genesis, noise(event));
  }

  std::size_t features() const { return dimension_of(*learner) - (form.intercept ? 1 : 0); }

  std::vector<double> mapped(std::span<const double> x) const {
    return unlearning::mapped(form, x, norm_bound(*learner));
  }

  void learn(Learner& into, RecordId id, std::span<const double> x, double y) const {
    add_record(into, id, x, y, calibration);
  }

  // Inside a transaction, after records were dropped.
  void start_over() {
    ++generation;
    Learner next = beginning(fmt::format("generation/{}", generation));
    store.each_record([&](RecordId id, std::string_view, const std::vector<double>& row) {
      learn(next, id, {row.data(), row.size() - 1}, row.back());
    });
    learner.emplace(std::move(next));
    store.put_number("generation", generation);
  }

  void publish_inside() {
    published = publication(*learner);
    store.put("publication", encoded(*published));
  }

  std::vector<DeletionReceipt> receipts(std::uint64_t first, std::uint64_t count) {
    std::vector<DeletionReceipt> out;
    for (auto& row : store.deletions(first, count)) {
      ledger::Entry entry = ledger::decode_entry(row.entry);
      auto* deletion = std::get_if<ledger::Deletion>(&entry);
      if (!deletion) {
        malformed("unlearn store", "an entry of the store is not a deletion");
      }
      out.push_back({std::move(*deletion), std::move(row.salt), std::move(row.records)});
    }
    return out;
  }

  // Whose deletions are known by their commitments only: each is opened with the new subjects.
  void require_never_deleted(std::span<const Row> rows) {
    if (deletions == 0 || rows.empty()) return;
    std::set<std::string_view> subjects;
    for (const Row& row : rows) subjects.insert(row.subject);
    for (const DeletionReceipt& receipt : receipts(0, deletions)) {
      for (const std::string_view subject : subjects) {
        if (ledger::deletion_commitment(receipt.salt, subject, receipt.records) !=
            receipt.entry.commitment) {
          continue;
        }
        invalid_input(kOp,
                      "subject '{}' was deleted (deletion {}); insert their records again only if "
                      "they asked for it, with --reinsert",
                      subject, receipt.entry.number);
      }
    }
  }

  // Throws for a store that is older than the ledger, or that deleted others than the ledger says.
  void require_current(const ledger::State& ledger) {
    const std::uint64_t there = ledger.next_deletion(model);
    if (there > deletions)
      malformed(kOp,
                "the ledger has {} deletions of model {}, but the store {}: it is an old copy "
                "that contains deleted records again; use the newest",
                there, model, deletions);
    if (there < chained) chained = 0, chain = {};
    for (const auto& row : store.deletions(chained, there - chained))
      chain = ledger::State::chained(chain, row.entry);
    chained = there;
    if (chain != ledger.deletions_of(model))
      malformed(kOp,
                "the ledger's {} deletions of model {} are not those of the store: the store is a "
                "copy that deleted other records; use the one that belongs to the ledger",
                there, model);
  }

  ModelStore store;
  Noise noise;
  std::string model;
  RecordForm form;
  Bytes genesis, state;
  std::uint64_t calibration = 0, generation = 0, next_id = 0, deletions = 0, confirmed = 0;
  std::uint64_t chained = 0;  // deletions in `chain`
  Digest chain{};             // as State::deletions_of()
  std::optional<Learner> learner;
  std::optional<Publication> published;
  bool stale = false;  // memory may differ from the file
};

Service::Noise Service::secure_noise() {
  auto root = std::make_shared<NoiseSource>(NoiseSource::secure());
  auto events = std::make_shared<std::uint64_t>(0);
  // A new name for every call: an event that is tried again draws new noise.
  return [root, events](std::string_view event) {
    return root->fork(fmt::format("{}/{}", event, (*events)++));
  };
}

void Service::create(const std::filesystem::path& path, const std::string& model,
                     const EngineOptions& options, const RecordForm& form) {
  require_text("model's name", model, 128);
  require_sound(form);
  std::uint64_t calibration = 0;
  const Learner learner = [&]() -> Learner {
    if (const auto* exact = std::get_if<ExactOptions>(&options)) return ExactEngine(*exact);
    if (const auto* erm = std::get_if<ErmOptions>(&options)) {
      return ErmEngine(*erm, NoiseSource::secure());
    }
    const auto& stream = std::get<StreamOptions>(options);
    if (stream.calibration < 1) refuse(kOp, "calibration", 0, "1 or more inserts");
    calibration = stream.calibration;
    const std::size_t dimension = stream.odometer.accounting == Accounting::kSpecification
                                      ? stream.dimension
                                      : stream.odometer.enforced.dimension;
    return MemoryPair(dimension, std::make_shared<PrivacyOdometer>(stream.odometer),
                      Calibrator(stream.calibrator), stream.loss, NoiseSource::secure());
  }();
  const std::size_t intercept = form.intercept ? 1 : 0;
  const std::size_t features = form.columns
                                   ? feature_names(*form.columns).size()
                                   : std::max<std::size_t>(1, dimension_of(learner) - intercept);
  if (dimension_of(learner) != features + intercept) {
    invalid_input(kOp, "dimension is {}; this form of records needs {}", dimension_of(learner),
                  features + intercept);
  }
  static_cast<void>(terms_of(learner));  // what no receipt can hold is rejected before a file
  ModelStore store(path, ModelStore::Mode::kCreate);
  store.transact([&] {
    const Bytes state = saved(learner);
    store.put("model", bytes_of(model));
    store.put("genesis", state);
    store.put("state", state);
    store.put_number("calibration", calibration);
    if (form.is_plain()) return;
    store.put("form", encode(form));
    store.require_form_reader();
  });
}

Service::Service(const std::filesystem::path& path, Noise noise)
    : impl_(std::make_unique<Impl>(path, std::move(noise))) {}
Service::Service(const std::filesystem::path& path, const std::filesystem::path& ledger,
                 Noise noise)
    : Service(path, std::move(noise)) {
  ledger::Store file(ledger, ledger::Store::Mode::kRead);
  file.begin_snapshot();
  ledger::VerifyOptions options;
  options.attestations = false;
  ledger::Verification where;
  impl_->require_current(ledger::load(file, options, true, where).state);
}
Service::~Service() = default;
Service::Service(Service&&) noexcept = default;

std::uint64_t Service::insert(std::string_view request, std::span<const Row> rows,
                              Reinsert reinsert) {
  Impl& s = *impl_;
  s.require_fresh();
  require_text("request's name", request, 128);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    try {
      require_text("subject", rows[i].subject, 256);
      require_record("insert", s.features(), rows[i].x, rows[i].y);
      require_fits(*s.learner, s.mapped(rows[i].x), rows[i].y);
    } catch (const Error& error) {
      fail(error.code(), error.op(), "row {}: {}", i + 1, error.sentence());
    }
  }
  ModelStore::Request done{0, 0, 0, {}};
  if (const auto known = s.store.request(request)) {
    Digest digest{};
    for (std::size_t i = 0; i < std::min<std::size_t>(rows.size(), known->first); ++i) {
      digest = chained(digest, rows[i]);
    }
    if (known->kind != 0 || rows.size() < known->first || digest != known->digest) {
      invalid_input(kOp, "request {} was made before with other content; use a new name", request);
    }
    done = *known;
  }
  if (reinsert == Reinsert::kRefuse) s.require_never_deleted(rows.subspan(done.first));
  const std::uint64_t fresh = rows.size() - done.first;
  if (const std::uint64_t room = room_of(*s.learner); fresh > room) {
    invalid_input(kOp, "{} rows exceed the {} that n_max leaves room for", fresh, room);
  }
  while (done.first < rows.size()) {
    const std::size_t end = std::min<std::size_t>(rows.size(), done.first + kRowsPerCommit);
    s.change([&] {
      for (std::size_t i = done.first; i < end; ++i) {
        const RecordId id = s.next_id++;
        std::vector<double> row = s.mapped(rows[i].x);
        s.learn(*s.learner, id, row, rows[i].y);
        row.push_back(rows[i].y);
        s.store.add_record(id, rows[i].subject, row);
        done.digest = chained(done.digest, rows[i]);
      }
      done.first = end;
      s.store.put_number("next_id", s.next_id);
      s.store.put_request(request, done);
    });
  }
  return fresh;
}

Service::Moved Service::moved(std::span<const Row> rows) const {
  const Impl& s = *impl_;
  impl_->require_fresh();
  const auto* pair = std::get_if<MemoryPair>(&*s.learner);
  Moved count;
  if (pair && !pair->odometer().certified()) return count;  // nothing is enforced
  const double R = norm_bound(*s.learner), Y = unlearning::label_bound(*s.learner);
  for (const Row& row : rows) {
    require_record("insert", s.features(), row.x, row.y);
    if (!s.form.columns) count.records += numerics::norm_l2(row.x) > R * (1 + 0x1p-40);
    count.labels += std::abs(row.y) > Y * (1 + 0x1p-40);
  }
  return count;
}

bool Service::knows(std::string_view request) const {
  impl_->require_fresh();
  return impl_->store.request(request).has_value();
}

std::vector<DeletionReceipt> Service::erase(std::string_view request,
                                            std::span<const std::string> subjects,
                                            ledger::Ledger& ledger, std::uint64_t now,
                                            const std::optional<Digest>& withdrawal) {
  Impl& s = *impl_;
  s.require_fresh();
  require_text("request's name", request, 128);
  if (subjects.empty()) invalid_input(kOp, "no subject is named; name at least one");
  confirm(ledger);
  const Digest digest =
      sha256(cbor::encode(cbor::array({cbor::array({subjects.begin(), subjects.end()}),
                                       withdrawal ? cbor::Value(*withdrawal) : cbor::Value()})));
  if (const auto known = s.store.request(request)) {
    if (known->kind != 1 || known->digest != digest) {
      invalid_input(kOp, "request {} was made before with other content; use a new name", request);
    }
    return s.receipts(known->first, known->count);
  }

  ledger::Deletion terms = terms_of(*s.learner);
  terms.model = s.model;
  terms.time = now;
  if (withdrawal) {
    terms.withdrawal = ledger.state().withdrawal_of(*withdrawal);
    if (!terms.withdrawal) {
      invalid_input(kOp,
                    "descriptor {} is not withdrawn in the ledger; record its "
                    "withdrawal first ('discreet withdraw')",
                    to_hex(*withdrawal));
    }
  }
  std::vector<DeletionReceipt> receipts;
  std::vector<RecordId> all;
  std::set<std::string_view> seen;
  for (const std::string& subject : subjects) {
    if (!seen.insert(subject).second) {
      invalid_input(kOp, "subject '{}' is named twice; name it once", subject);
    }
    DeletionReceipt receipt{terms, {}, s.store.records_of(subject)};
    if (receipt.records.empty()) {
      invalid_input(kOp,
                    "subject '{}' has no records in the model: they were never inserted, or are "
                    "already deleted; check the spelling",
                    subject);
    }
    const random::Key salt = random::Key::from_system();
    receipt.salt.assign(salt.secret_bytes().begin(), salt.secret_bytes().end());
    receipt.entry.number = s.deletions + receipts.size();
    receipt.entry.commitment = ledger::deletion_commitment(receipt.salt, subject, receipt.records);
    all.insert(all.end(), receipt.records.begin(), receipt.records.end());
    receipts.push_back(std::move(receipt));
  }
  std::vector<std::vector<double>> rows;
  for (const RecordId id : all) rows.push_back(s.store.row(id));

  s.change([&] {
    for (const RecordId id : all) s.store.drop_record(id);
    const auto noise_of = [&](RecordId id) {
      return s.noise(fmt::format("delete/{}/{}", s.generation, id));
    };
    if (!remove_records(*s.learner, all, rows, noise_of)) s.start_over();
    for (DeletionReceipt& receipt : receipts) {
      receipt.entry.generation = s.generation;
      s.store.add_deletion(receipt.entry.number,
                           {ledger::encode(receipt.entry), receipt.salt, receipt.records});
    }
    s.store.put_request(request, {1, s.deletions, receipts.size(), digest});
    s.deletions += receipts.size();
    s.store.put_number("deletions", s.deletions);
    if (s.published) {
      if (std::holds_alternative<ErmEngine>(*s.learner)) {
        s.published.reset();
        s.store.drop("publication");
      } else {
        s.publish_inside();
      }
    }
  });

  std::vector<ledger::Deletion> entries;
  for (const DeletionReceipt& receipt : receipts) entries.push_back(receipt.entry);
  try {
    ledger.record_deletions(entries);
  } catch (const Error& error) {
    fail(error.code(), kOp,
         "the records are deleted, but the receipt is not in the ledger yet ({}); repeat the same "
         "request",
         error.sentence());
  }
  s.confirmed = s.deletions;
  return receipts;
}

std::size_t Service::confirm(ledger::Ledger& ledger) {
  Impl& s = *impl_;
  s.require_fresh();
  s.require_current(ledger.state());
  const std::uint64_t there = ledger.state().next_deletion(s.model);
  std::size_t written = 0;
  if (there < s.deletions) {
    std::vector<ledger::Deletion> entries;
    for (const auto& receipt : s.receipts(there, s.deletions - there)) {
      entries.push_back(receipt.entry);
    }
    written = ledger.record_deletions(entries);
  }
  s.confirmed = s.deletions;
  return written;
}

Release Service::publish() {
  Impl& s = *impl_;
  s.require_fresh();
  s.change([&] {
    if (auto* erm = std::get_if<ErmEngine>(&*s.learner)) {
      if (erm->releases_left() == 0 && erm->options().guarantee != Guarantee::kTranscript) {
        s.start_over();
      }
      std::get<ErmEngine>(*s.learner).use_noise(s.noise(fmt::format("publish/{}", s.generation)));
    }
    s.publish_inside();
  });
  return s.published->release;
}

Prediction Service::predict(std::span<const double> x) const {
  Impl& s = *impl_;
  s.require_fresh();  // a publication that did not reach the disk is not used
  if (!s.published) {
    invalid_input(kOp, "nothing was published since the last delete; call publish first");
  }
  require_record("predict", s.features(), x, 0);
  return {numerics::dot(s.published->release.parameters, bounded(*s.learner, s.mapped(x))),
          s.published->ready};
}

void Service::retrain() {
  Impl& s = *impl_;
  s.require_fresh();
  s.change([&] {
    s.start_over();
    if (!s.published) return;
    if (std::holds_alternative<ErmEngine>(*s.learner)) return;  // the last release stays as it is
    s.publish_inside();
  });
}

Digest Service::state_digest() const {
  Impl& s = *impl_;
  s.require_fresh();
  Sha256 rows;
  s.store.each_record([&](RecordId id, std::string_view subject, const std::vector<double>& row) {
    rows.update(cbor::encode(cbor::array({id, subject, packed(row)})));
  });
  return sha256(cbor::encode(
      cbor::array({s.model, s.generation, s.next_id, s.deletions, s.state, rows.finish()})));
}

ServiceStatus Service::status() const {
  Impl& s = *impl_;
  s.require_fresh();
  ServiceStatus out;
  out.model = s.model;
  describe(*s.learner, out);
  out.deletions = s.deletions;
  out.generation = s.generation;
  out.unconfirmed = s.deletions - std::min(s.deletions, s.confirmed);
  out.published = s.published.has_value();
  out.state = state_digest();
  return out;
}

std::uint64_t Service::commits() const noexcept { return impl_->store.commits(); }

const RecordForm& Service::form() const { return impl_->form; }
std::size_t Service::features() const {
  impl_->require_fresh();
  return impl_->features();
}
double Service::label_bound() const {
  impl_->require_fresh();
  return unlearning::label_bound(*impl_->learner);
}

std::vector<double> Service::mapped(std::span<const double> x) const {
  require_record(kOp, features(), x, 0);
  return impl_->mapped(x);
}
std::vector<double> Service::as_learned(std::span<const double> z) const {
  impl_->require_fresh();
  require_record(kOp, dimension_of(*impl_->learner), z, 0);
  return bounded(*impl_->learner, z);
}

const Learner& Service::learner() const {
  impl_->require_fresh();
  return *impl_->learner;
}

std::vector<Row> Service::rows() const {
  std::vector<Row> out;
  impl_->store.each_record([&](RecordId, std::string_view subject, const std::vector<double>& row) {
    out.push_back({std::string(subject), std::vector(row.begin(), row.end() - 1), row.back()});
  });
  return out;
}

Learner Service::fresh(std::string_view event) const {
  return restored_learner(impl_->genesis, impl_->noise(event));
}

void Service::learn(Learner& learner, RecordId id, std::span<const double> x, double y) const {
  impl_->learn(learner, id, x, y);
}

}  // namespace discreet::unlearning
