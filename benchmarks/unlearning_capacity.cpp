// How many deletes the specification's formulas permit, and how many are certified, at equal
// (epsilon, delta, gamma). Prints a table; nothing is timed.
#include <cstdio>
#include <vector>

#include "discreet/unlearning/capacity/odometer.h"

int main() {
  using namespace discreet::unlearning;
  struct Row {
    const char* change;
    Constants k;
    LiteralTarget t;
  };
  const LiteralTarget base{1, 1e-5, 0.1, 0.05, 100000, 0.05};
  const auto with = [&](auto change) {
    LiteralTarget t = base;
    change(t);
    return t;
  };
  using T = LiteralTarget;
  const std::vector<Row> rows = {
      {"base", {}, base},
      {"gamma=.005", {}, with([](T& t) { t.gamma = 0.005; })},
      {"gamma=.004", {}, with([](T& t) { t.gamma = 0.004; })},
      {"gamma=.003", {}, with([](T& t) { t.gamma = 0.003; })},
      {"gamma=1e-9", {}, with([](T& t) { t.gamma = 1e-9; })},
      {"gamma=1e-10", {}, with([](T& t) { t.gamma = 1e-10; })},
      {"gamma=1e6", {}, with([](T& t) { t.gamma = 1e6; })},
      {"lambda=10,T=1e6,gamma=1", {}, with([](T& t) {
         t.lambda = 10, t.T = 1000000, t.gamma = 1;
       })},
      {"G=2,D=.5,c=.5,C=8,gamma=.1", {2, 0.5, 0.5, 8}, with([](T& t) { t.gamma = 0.1; })},
      {"eps=.1,delta=1e-6", {}, with([](T& t) { t.eps_total = 0.1, t.delta_total = 1e-6; })},
      {"eps=8", {}, with([](T& t) { t.eps_total = 8; })},
      {"lambda=1e-12,gamma=10", {}, with([](T& t) { t.lambda = 1e-12, t.gamma = 10; })},
      {"T=1,lambda=10,gamma=10", {}, with([](T& t) { t.T = 1, t.lambda = 10, t.gamma = 10; })},
      {"G=28.3,D=.126,T=1e4,gamma=.48", {28.3, 0.126, 1, 1}, with([](T& t) {
         t.T = 10000, t.gamma = 0.48;
       })},
      {"G=.9,lambda=1,T=1e4,gamma=.3", {0.9, 1, 1, 1}, with([](T& t) {
         t.lambda = 1, t.T = 10000, t.gamma = 0.3;
       })},
      {"delta_B=.5,gamma=2", {}, with([](T& t) { t.delta_B = 0.5, t.gamma = 2; })},
  };
  std::printf("dimension 54, no delete before T/10; literal: not certified\n\n");
  std::printf("| change | literal | per-record zcdp | rdp | gdp | set-level zcdp | rdp | gdp |\n");
  std::printf("|---|---|---|---|---|---|---|---|\n");
  for (const Row& row : rows) {
    std::printf("| %s | %llu |", row.change,
                static_cast<unsigned long long>(literal_capacity(row.k, row.t).m));
    for (const auto guarantee : {Guarantee::kPerRecord, Guarantee::kSetLevel}) {
      for (const auto accounting : {Accounting::kZcdp, Accounting::kRdp, Accounting::kGdp}) {
        OdometerOptions o;
        o.eps_total = row.t.eps_total;
        o.delta_total = row.t.delta_total;
        o.lambda = row.t.lambda;
        o.gamma_priv = row.t.gamma;
        o.accounting = accounting;
        o.guarantee = guarantee;
        o.enforced = {Loss::kLogistic, 54, row.t.lambda, row.k.G, row.k.D, row.k.G, 1};
        PrivacyOdometer odometer(o);
        odometer.finalize_with({}, row.t.T, row.t.T / 10);
        std::printf(" %llu |", static_cast<unsigned long long>(odometer.m()));
      }
    }
    std::printf("\n");
  }
}
