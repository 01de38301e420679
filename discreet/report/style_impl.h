#pragma once

#include <string_view>

namespace discreet::report {

// The style sheet of the page: light, dark, narrow and printed. Colours have a contrast of at least
// 4.5 : 1 to what is behind them.
inline constexpr std::string_view kStyle = R"css(
:root{--ink:#1d2530;--soft:#55606e;--paper:#f7f7f5;--card:#fff;--edge:#e2e6ea;--axis:#8792a0;
--s1:#1f5fa8;--s2:#b0500a;--s3:#8a4baf;--s4:#6b5b00;--limit:#b3261e;--warn:#8f5f00;
--good:#1d6b3c;--alarm:#b3261e;--alarm-ink:#fff;--note:#fff6e0;--note-edge:#e0b95c;color-scheme:light}
@media (prefers-color-scheme:dark){:root{--ink:#e7eaee;--soft:#a3adb9;--paper:#121519;--card:#1a1e24;
--edge:#2e353e;--axis:#6f7b89;--s1:#7db3f0;--s2:#f0a565;--s3:#cf9cf0;--s4:#d6c26a;--limit:#ff8f86;
--warn:#e5b454;--good:#7fd39c;--alarm:#8e1b14;--alarm-ink:#fff;--note:#2b2414;--note-edge:#7d6424;
color-scheme:dark}}
*{box-sizing:border-box}
html{font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,"Noto Sans","Liberation Sans",sans-serif;
color:var(--ink);background:var(--paper);-webkit-text-size-adjust:100%}
body{margin:0}
main,.banner>div{max-width:62rem;margin:0 auto;padding:0 1.25rem}
main{padding-bottom:4rem}
.banner{padding:.55rem 0;background:var(--note);border-bottom:1px solid var(--note-edge);font-size:.9rem}
.banner.public{background:var(--card);border-color:var(--edge)}
.banner.alarm{background:var(--alarm);border-color:var(--alarm);color:var(--alarm-ink);padding:1.1rem 0;
font-size:1rem}
.banner.alarm h2{margin:0 0 .3rem;font-size:1.5rem;border:0;padding:0}
.banner.alarm ul{margin:.3rem 0 0;padding-left:1.2rem}
header{padding:2.6rem 0 .4rem}
h1{margin:0;font-size:2.1rem;line-height:1.15;letter-spacing:-.02em;font-weight:650}
header p{margin:.5rem 0 0;color:var(--soft);overflow-wrap:anywhere}
h2{margin:3rem 0 1rem;font-size:1.25rem;letter-spacing:-.01em;font-weight:650;line-height:1.3}
h3{margin:0;font-size:1rem;font-weight:600}
p{margin:.7rem 0}
.statement{max-width:46rem}
.lead{font-size:1.2rem;line-height:1.55}
.formal,.small,figcaption p,caption,.card p{color:var(--soft);font-size:.875rem;line-height:1.5}
.formula{white-space:nowrap}
.chip{display:inline-block;padding:.05rem .65rem;border:1px solid currentColor;border-radius:1rem;
font-size:.85rem;font-weight:600;color:var(--good)}
.chip.odd{color:var(--warn)}
.cards{display:grid;grid-template-columns:repeat(4,1fr);gap:1rem;margin:1.6rem 0 0;padding:0}
.card,figure,.panel{background:var(--card);border:1px solid var(--edge);border-radius:.6rem}
.card{padding:1rem 1.1rem}
.card dt{font-size:.85rem;color:var(--soft);font-weight:600}
.card dd{margin:0}
.card .big{font-size:1.75rem;line-height:1.25;font-weight:650;letter-spacing:-.02em;
font-variant-numeric:tabular-nums;margin:.15rem 0 0}
.card .words{font-size:1.15rem;line-height:1.25;font-weight:650;margin:.4rem 0 0}
.card p{margin:.35rem 0 0}.card .big,.card .words{color:var(--ink)}
.card.void .big{text-decoration:line-through;text-decoration-thickness:2px;color:var(--soft)}
.figures{display:grid;grid-template-columns:repeat(2,minmax(0,1fr));gap:1rem}
figure{margin:0;padding:1rem 1.1rem .6rem;display:flex;flex-direction:column;
break-inside:avoid;page-break-inside:avoid}
figcaption p{margin:.2rem 0 .4rem}
figure svg{margin-top:auto}
.legend{list-style:none;margin:.3rem 0 .5rem;padding:0;display:flex;flex-wrap:wrap;gap:.1rem 1rem;
font-size:.85rem}
.legend svg{width:1.5em;height:.5em;margin-right:.45em;vertical-align:.15em}
.plot{display:block;width:100%;height:auto;overflow:visible}
.plot text{fill:var(--soft);font-size:11px;font-variant-numeric:tabular-nums}
.plot .label{fill:var(--soft)}
.plot line{vector-effect:non-scaling-stroke}
.grid{stroke:var(--edge)}.axis{stroke:var(--axis)}
polyline{fill:none;stroke-width:1.8;stroke-linejoin:round;vector-effect:non-scaling-stroke}
polyline.s1,line.s1{stroke:var(--s1)}polyline.s2,line.s2{stroke:var(--s2)}
polyline.s3,line.s3{stroke:var(--s3)}polyline.s4,line.s4{stroke:var(--s4)}
.band{opacity:.22}polygon.s1{fill:var(--s1)}polygon.s2{fill:var(--s2)}polygon.s3{fill:var(--s3)}
polygon.s4{fill:var(--s4)}
.dot.s1{fill:var(--s1)}.dot.s2{fill:var(--s2)}.dot.s3{fill:var(--s3)}.dot.s4{fill:var(--s4)}
.legend line{stroke-width:3}
line.limit{stroke:var(--limit);stroke-width:1.4}line.warn{stroke:var(--warn);stroke-width:1.2}
.plot text.limit,.plot text.warn{paint-order:stroke;stroke:var(--card);stroke-width:3px;font-weight:600}
.plot text.limit{fill:var(--limit)}.plot text.warn{fill:var(--warn)}
.both{display:grid;grid-template-columns:1fr 1fr;gap:1rem}
.panel{padding:1rem 1.2rem}
.panel ul{margin:.5rem 0 0;padding-left:1.1rem}
.panel li{margin:.45rem 0;font-size:.94rem;line-height:1.5}
.yes{border-top:3px solid var(--good)}.no{border-top:3px solid var(--limit)}
.scroll{overflow-x:auto;position:relative}
table{border-collapse:collapse;width:100%;font-size:.92rem}
caption{text-align:left;padding:0 0 .6rem;caption-side:top}
th,td{text-align:left;padding:.42rem .9rem .42rem 0;border-top:1px solid var(--edge);vertical-align:top}
thead th{border-top:0;color:var(--soft);font-weight:600;font-size:.85rem}
tbody th{font-weight:500;color:var(--soft);width:15rem}
.numbers td{font-variant-numeric:tabular-nums}
.numbers tbody th{color:var(--ink);width:auto}
td{overflow-wrap:anywhere}
code,pre{font-family:ui-monospace,"SF Mono",Menlo,Consolas,"Liberation Mono",monospace;font-size:.84em}
pre{margin:.6rem 0 0;columns:2;column-gap:2.5rem;white-space:pre-wrap;overflow-wrap:anywhere;line-height:1.55;
font-size:.78rem}
summary{cursor:pointer;font-weight:600}
summary:focus-visible{outline:2px solid var(--s1);outline-offset:3px;border-radius:3px}
section>.panel+.panel{margin-top:1rem}
.checks .verdict{display:inline-block;padding:0 .6rem;border:1px solid currentColor;border-radius:1rem;
font-size:.8rem;white-space:nowrap;color:var(--warn)}
.checks [data-verdict=VERIFIED] .verdict{color:var(--good)}
.checks [data-verdict=BROKEN] .verdict{background:var(--alarm);color:var(--alarm-ink);border-color:var(--alarm)}
.checks th{width:22rem;color:var(--ink)}.checks+.paste{margin:1rem 0}
.paste{display:grid;grid-template-columns:1fr 1fr;gap:0 1rem}
.paste label{display:block;font-size:.85rem;font-weight:600}
textarea{width:100%;font:.8rem/1.4 ui-monospace,Menlo,Consolas,"Liberation Mono",monospace;color:var(--ink);
background:var(--paper);border:1px solid var(--axis);border-radius:.4rem;padding:.4rem .5rem;resize:vertical}
textarea::placeholder{color:var(--soft);opacity:1}
textarea:focus-visible{outline:2px solid var(--s1);outline-offset:1px}
.panel details{margin-top:.7rem}pre.one{columns:1}
.panel>.scroll{margin-top:.4rem}.panel>.small{margin:.2rem 0}.panel>.scroll td{overflow-wrap:normal}
.small code{overflow-wrap:anywhere}
.unseen{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%)}
[data-is$=date],[data-is$=run],[data-is$=by]{white-space:nowrap}
[data-is$=descriptor],[data-is$=manifest],[data-is=key],[data-is=stewards],[data-is=policy]{font:.78rem/1.6 ui-monospace,
"SF Mono",Menlo,Consolas,"Liberation Mono",monospace}
footer{margin-top:3.5rem;padding-top:1rem;border-top:1px solid var(--edge);color:var(--soft);font-size:.85rem}
@media (max-width:60rem){.cards{grid-template-columns:1fr 1fr}}
@media (max-width:44rem){html{font-size:15px}header{padding-top:1.6rem}h1{font-size:1.75rem}
h2{margin-top:2.4rem}.figures,.both,.paste{grid-template-columns:minmax(0,1fr)}pre{columns:1}
.lead{font-size:1.12rem}tbody th{width:auto;min-width:6.5rem}.card{padding:.85rem .9rem}
.card .big{font-size:1.5rem}.plot text{font-size:12px}
.facts tr{display:block;border-top:1px solid var(--edge);padding:.4rem 0}
.facts th,.facts td{display:block;border:0;padding:0}.checks th{width:auto}}
@media (max-width:21rem){.cards{grid-template-columns:1fr}}
@media print{:root{--ink:#000;--soft:#444;--paper:#fff;--card:#fff;--edge:#ccc;--axis:#777;--s1:#1f5fa8;
--s2:#b0500a;--s3:#8a4baf;--s4:#6b5b00;--limit:#b3261e;--warn:#8f5f00;--good:#1d6b3c;--note:#fff;
--note-edge:#000;--alarm:#fff;--alarm-ink:#b3261e;color-scheme:light}
html{font-size:9.5pt}figure{padding:.6rem .8rem .3rem}figure .plot{height:40mm}main,.banner>div{max-width:none;padding:0}header{padding-top:1rem}
h2{margin-top:1.6rem;break-after:avoid}.cards{grid-template-columns:repeat(4,1fr)}
.figures,.both{grid-template-columns:1fr 1fr}.facts tr{display:table-row}.facts th,.facts td{display:table-cell;
border-top:1px solid var(--edge);padding:.3rem .9rem .3rem 0}
.card,figure,tr,li,.both .panel{break-inside:avoid}.banner.alarm{border:3px solid #b3261e;padding:.6rem}
details::details-content{content-visibility:visible;block-size:auto;display:block}
summary{list-style:none}a{color:inherit}.paste{display:none}
.scroll{overflow:visible}.panel>.scroll :is(th,td){white-space:normal;overflow-wrap:anywhere;font-size:.85em;padding-right:.4rem}}
@page{margin:16mm 15mm 18mm;@bottom-right{content:counter(page) " / " counter(pages);font:8pt sans-serif;color:#555}}
)css";

// Added to the confidential page: every printed sheet says so.
inline constexpr std::string_view kConfidentialStyle =
    "@page{@top-right{content:\"Confidential\";font:bold 8pt sans-serif;color:#b3261e}}\n";

}  // namespace discreet::report
