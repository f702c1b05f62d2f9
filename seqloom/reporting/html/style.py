"""The style sheet of every page: one file, no font, script or picture from anywhere else; light and dark."""

from __future__ import annotations

from seqloom.reporting.html.elements import Markup

# Fonts that readers have; Chinese, Japanese and Korean ones by name, since a browser's own choice may be poor.
SANS = (
    '-apple-system, "Segoe UI", Roboto, "Helvetica Neue", "Noto Sans", "Liberation Sans", Arial, "PingFang SC", '
    '"Hiragino Sans GB", "Microsoft YaHei", "Noto Sans CJK SC", "Source Han Sans SC", "WenQuanYi Zen Hei", sans-serif'
)
SERIF = (
    '"Iowan Old Style", "Palatino Linotype", Palatino, "Source Serif 4", Charter, Georgia, "Liberation Serif", '
    '"Songti SC", "Noto Serif CJK SC", "Source Han Serif SC", SimSun, serif'
)
MONO = 'ui-monospace, "SF Mono", Menlo, Consolas, "Liberation Mono", "Noto Sans Mono CJK SC", monospace'

LIGHT = """
  --paper: #fdfdfb; --shade: #22252a2b;
  --ink: #22252a; --quiet: #666c75; --line: #dedfdb; --tint: #f4f4f0; --wash: #f9f9f6;
  --accent: #2c5f8d; --bad: #a8322a; --bad-tint: #fbe9e5; --good: #3c7346; --warn-tint: #fdf3dc; --warn: #7d5a0c;
  --s0: #2c5f8d; --s1: #c0602b; --s2: #4c8050; --s3: #7c559b; --s4: #9a8322; --s5: #23878c; --s6: #b0446b;
  --s7: #6b6f76;
"""
DARK = """
  --paper: #16181b; --shade: #e4e3de38;
  --ink: #e4e3de; --quiet: #9a9fa7; --line: #34383e; --tint: #202327; --wash: #1b1e21;
  --accent: #83b4e0; --bad: #f0948a; --bad-tint: #41231f; --good: #8ac295; --warn-tint: #39301a; --warn: #e4c375;
  --s0: #83b4e0; --s1: #eb9b66; --s2: #8fc492; --s3: #bd9bdb; --s4: #d3bd5e; --s5: #6fc6ca; --s6: #e58fb1;
  --s7: #a9adb4;
"""

COLOURS = "".join(f".s{n} {{ --c: var(--s{n}) }} " for n in range(8))

CSS = f"""
:root {{ color-scheme: light dark; {LIGHT} }}
@media (prefers-color-scheme: dark) {{ :root {{ {DARK} }} }}
{COLOURS}
* {{ box-sizing: border-box }}
html {{ -webkit-text-size-adjust: 100%; text-size-adjust: 100% }}
body {{ margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.55 {SANS} }}
main {{ max-width: 66rem; margin: 0 auto; padding: 3rem 1.5rem 5rem }}
h1, h2, .lead, .big b {{ font-family: {SERIF}; font-weight: 500 }}
h1 {{ font-size: 2.3rem; line-height: 1.15; margin: 0 0 .2rem; overflow-wrap: anywhere }}
h2 {{ font-size: 1.5rem; line-height: 1.25; margin: 3.2rem 0 .9rem; padding-top: .9rem;
  border-top: 1px solid var(--line) }}
h3 {{ font-size: 1rem; font-weight: 600; margin: 1.8rem 0 .5rem }}
p {{ margin: .5rem 0; max-width: 44rem }}
.over {{ color: var(--quiet); font-size: .82rem; letter-spacing: .06em; text-transform: uppercase; margin: 0 0 .5rem }}
body:lang(zh) {{ line-height: 1.7 }}
.over:lang(zh) {{ letter-spacing: 0 }}
.lead {{ font-size: 1.2rem; line-height: 1.55; margin: 1rem 0 1.6rem; max-width: 46rem }}
.quiet, figcaption span, .nothing {{ color: var(--quiet) }}
.small {{ font-size: .88rem }}
a {{ color: var(--accent) }}
code, pre, .mono {{ font-family: {MONO}; font-size: .86em }}
bdi {{ unicode-bidi: isolate; overflow-wrap: anywhere }}
pre {{ background: var(--tint); padding: .8rem 1rem; border-radius: 4px; overflow-x: auto; line-height: 1.5;
  white-space: pre-wrap; overflow-wrap: anywhere; margin: .6rem 0 }}
.figures {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(9.5rem, 1fr)); gap: 1.2rem 2rem; margin: 0;
  padding: 1.1rem 0 0; border-top: 1px solid var(--line) }}
.big b {{ display: block; font-size: 1.75rem; line-height: 1.25; font-variant-numeric: tabular-nums lining-nums }}
.big span {{ display: block; color: var(--quiet); font-size: .86rem; line-height: 1.4 }}
.warning {{ background: var(--warn-tint); border-left: 3px solid var(--warn); padding: .7rem 1rem; margin: 1.4rem 0;
  border-radius: 0 4px 4px 0 }}
.warning p {{ max-width: none; margin: .2rem 0 }}
.warning ul {{ margin: .4rem 0; padding-left: 1.2rem }}
.scroll {{ overflow-x: auto; margin: .6rem 0; max-width: 100%; background:
  linear-gradient(to right, var(--paper) 1.5rem, transparent) left / 3rem 100% no-repeat local,
  linear-gradient(to left, var(--paper) 1.5rem, transparent) right / 3rem 100% no-repeat local,
  linear-gradient(to right, var(--shade), transparent) left / .9rem 100% no-repeat scroll,
  linear-gradient(to left, var(--shade), transparent) right / .9rem 100% no-repeat scroll }}
table {{ border-collapse: collapse; font-size: .93rem; font-variant-numeric: tabular-nums lining-nums }}
th, td {{ padding: .38rem 1.3rem .38rem 0; text-align: left; vertical-align: baseline;
  border-bottom: 1px solid var(--line) }}
th:last-child, td:last-child {{ padding-right: 0 }}
th {{ font-weight: 600 }}
thead th {{ color: var(--quiet); font-weight: 500; font-size: .86rem; white-space: nowrap;
  border-bottom: 1px solid var(--quiet) }}
tbody th {{ font-weight: 500; min-width: 5rem }}
tbody th:has(small) {{ min-width: 11rem }}
tbody th small {{ display: block; color: var(--quiet); font-weight: 400; font-size: .82rem }}
td.n, th.n {{ text-align: right; white-space: nowrap }}
td small {{ color: var(--quiet); font-size: .82rem }}
td code {{ color: var(--quiet); font-size: .78rem }}
td:has(> code) {{ min-width: 12rem }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 19rem), 1fr)); gap: 2rem 2rem }}
.two {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 22rem), 1fr)); gap: 1.5rem 3rem;
  align-items: start }}
.beside {{ display: flex; flex-wrap: wrap; gap: 1.5rem 3rem; align-items: flex-start }}
.beside > figure {{ flex: 1 1 18rem; max-width: 27rem }}
figure {{ margin: 0; min-width: 0 }}
figcaption {{ font-size: .88rem; margin-bottom: .35rem; line-height: 1.4 }}
figcaption strong {{ font-weight: 600; margin-right: .5em }}
.key {{ white-space: nowrap; margin-right: .9em }}
.swatch {{ display: inline-block; width: 1.1em; height: 0; border-top: 3px solid var(--c); vertical-align: .25em;
  margin-right: .4em }}
.swatch.again {{ border-top-style: dotted }}
svg {{ display: block; font-family: {SANS}; font-size: 11.5px; font-variant-numeric: tabular-nums }}
svg.chart {{ width: 100%; height: auto; max-width: 27rem }}
svg.own {{ max-width: 100%; height: auto }}
svg text {{ fill: var(--ink) }}
svg text.label {{ fill: var(--quiet) }}
svg text.token {{ unicode-bidi: isolate; font-size: 12px }}
.grid {{ stroke: var(--line); stroke-width: 1 }}
.axis {{ stroke: var(--quiet); stroke-width: 1 }}
.line {{ fill: none; stroke: var(--c); stroke-width: 1.6; stroke-linejoin: round; stroke-linecap: round }}
.line.again {{ stroke-dasharray: 5 3 }}
.dot {{ fill: var(--c) }}
.ring {{ fill: none; stroke: var(--c); stroke-width: 1.5 }}
.bar {{ fill: var(--c); fill-opacity: .55 }}
.whisker {{ fill: none; stroke: var(--ink); stroke-width: 1 }}
.heat rect {{ fill: var(--accent) }}
.frame {{ fill: var(--wash); stroke: var(--line) }}
ol.shown {{ list-style: none; margin: .4rem 0; padding: 0; display: grid; gap: 0 3rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 27rem), 1fr)) }}
.pairs {{ display: flex; flex-wrap: wrap; gap: 0 3rem }}
ol.shown > li {{ padding: .7rem 0; border-bottom: 1px solid var(--line) }}
.asked {{ display: flex; flex-wrap: wrap; gap: .1rem 1.2rem; align-items: baseline; justify-content: space-between }}
.asked > bdi {{ font-weight: 600; font-size: 1.04rem; white-space: pre-wrap }}
.sides {{ display: grid; grid-template-columns: 4.4rem minmax(0, 1fr); margin-top: .25rem }}
.sides .names {{ color: var(--quiet); font-size: .8rem; line-height: 1.7 }}
.names span, .pair bdi {{ display: block }}
.tokens {{ display: flex; flex-wrap: wrap; gap: .3rem 0; min-width: 0; line-height: 1.4 }}
.pair {{ padding: 0 .22em; max-width: 100%; text-align: center; line-height: 1.36rem; white-space: pre-wrap }}
.pair.unlike {{ background: var(--bad-tint); border-radius: 3px }}
.pair.unlike bdi:last-child {{ color: var(--bad); font-weight: 650; text-decoration: underline;
  text-underline-offset: 3px; text-decoration-thickness: 1px }}
.pair.unlike bdi.gap {{ text-decoration: none }}
.tag bdi:first-child {{ font-weight: 600 }}
.tag bdi + bdi {{ color: var(--quiet); font-size: .8rem }}
.right {{ color: var(--good) }}
.wrong {{ color: var(--bad) }}
details {{ margin: .8rem 0 }}
summary {{ cursor: pointer; font-weight: 500 }}
summary:hover {{ color: var(--accent) }}
footer {{ margin-top: 4rem; color: var(--quiet); font-size: .86rem }}
@media (max-width: 40rem) {{
  main {{ padding: 1.6rem 1rem 3rem }}
  h1 {{ font-size: 1.8rem }}
  .lead {{ font-size: 1.08rem }}
  .figures {{ grid-template-columns: 1fr 1fr; gap: 1rem }}
  .big b {{ font-size: 1.45rem }}
  th, td {{ padding-right: .8rem }}
}}
@media print {{ main {{ max-width: none; padding: 0 }} figure, li, tr {{ break-inside: avoid }} }}
"""


def style_sheet() -> Markup:
    """As the content of a style element, where nothing is unescaped: it must not hold a closing tag."""
    assert "<" not in CSS
    return Markup(CSS)
