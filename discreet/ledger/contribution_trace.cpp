#include "discreet/ledger/contribution_trace.h"

#include <map>
#include <set>

#include "discreet/base/error.h"
#include "discreet/ledger/spend.h"

namespace discreet::ledger {

Trace trace(Store& store, const Digest& descriptor) {
  Trace found;
  std::map<std::uint64_t, Terms> open_terms;
  std::set<std::string> runs;
  std::optional<Header> header;
  Store::Leaves leaves(store, 0);
  for (Store::Leaf leaf; leaves.next(leaf);) {
    if (leaf.summarised) continue;
    const Entry entry = decode_entry(leaf.content);
    if (const auto* use = std::get_if<Use>(&entry)) {
      if (!found.admission || use->contribution != found.admission->entry.number) continue;
      const auto terms = open_terms.find(use->terms);
      if (terms == open_terms.end())
        malformed("ledger", "entry {} names terms that do not exist", leaf.position);
      found.uses.push_back({leaf.position, terms->second, *use});
      found.spend = use->spend;
      runs.insert(terms->second.run);
    } else if (const auto* terms = std::get_if<Terms>(&entry)) {
      open_terms.emplace(leaf.position, *terms);
    } else if (std::holds_alternative<EpochEnd>(entry)) {
      open_terms.clear();
    } else if (const auto* admission = std::get_if<Admission>(&entry)) {
      if (admission->descriptor == descriptor) found.admission = {leaf.position, *admission};
    } else if (const auto* withdrawal = std::get_if<Withdrawal>(&entry)) {
      if (withdrawal->descriptor == descriptor) found.withdrawal = {leaf.position, *withdrawal};
    } else if (const auto* first = std::get_if<Header>(&entry)) {
      header = *first;
      found.has_plans = first->schema >= 2;
    } else if (const auto* release = std::get_if<Release>(&entry)) {
      if (runs.contains(release->run)) found.releases.push_back({leaf.position, *release});
    }
  }
  if (header && found.admission && found.withdrawal) {
    std::vector<Terms> used;
    for (const Trace::UseOf& use : found.uses) used.push_back(use.terms);
    found.spend = withdrawn_spend(*header, found.admission->entry, used, found.spend);
  }
  return found;
}

Tree tree_of(Store& store) {
  Tree tree;
  Store::Leaves leaves(store, 0);
  for (Store::Leaf leaf; leaves.next(leaf);)
    tree.append(leaf.summarised ? leaf.hash : leaf_hash(leaf.content));
  return tree;
}

Bytes leaf_at(Store& store, std::uint64_t position) {
  Store::Leaves leaves(store, position);
  Store::Leaf leaf;
  if (!leaves.next(leaf) || leaf.position != position)
    invalid_input("ledger", "entry {} does not exist", position);
  if (leaf.summarised)
    invalid_input("ledger", "entry {} was summarised; only its hash {} is left", position,
                  to_hex(leaf.hash));
  return {leaf.content.begin(), leaf.content.end()};
}

}  // namespace discreet::ledger
