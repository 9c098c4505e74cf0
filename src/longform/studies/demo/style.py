"""The style sheet of the report."""

STYLE = """
:root { --ground:#f6f7f9; --card:#fff; --ink:#1c2330; --soft:#5d6879; --rule:#e3e7ed; --long:#0b7a75; --orig:#d1662b;
  --third:#7a5ea8; --code:#10212b; --codeink:#dcebe9; --hit:11,122,117; --miss:209,102,43; }
@media (prefers-color-scheme: dark) { :root { --ground:#12161c; --card:#1a2028; --ink:#e6ebf2; --soft:#9aa7b8;
  --rule:#2c3541; --long:#3fc1b6; --orig:#f0945c; --third:#b39ae0; --code:#0c1116; --hit:63,193,182;
  --miss:240,148,92; } }
* { box-sizing:border-box; }
body { margin:0; background:var(--ground); color:var(--ink); font:16px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,
  "Helvetica Neue",Arial,sans-serif; }
main { max-width:1180px; margin:0 auto; padding:40px 24px 64px; }
h1 { font-size:32px; letter-spacing:-.02em; margin:0 0 6px; line-height:1.2; }
h2 { font-size:20px; margin:44px 0 12px; letter-spacing:-.01em; }
p { margin:0 0 12px; max-width:78ch; } p.lead { font-size:18px; color:var(--soft); } .soft { color:var(--soft); }
.cards { display:grid; grid-template-columns:repeat(auto-fit,minmax(215px,1fr)); gap:14px; margin:26px 0 6px; }
.card,.panel { background:var(--card); border:1px solid var(--rule); border-radius:12px; padding:18px 20px; }
.card .value { font-size:32px; font-weight:650; letter-spacing:-.02em; color:var(--long); line-height:1.15; }
.card .name { font-size:14px; font-weight:600; } .card .note { font-size:13.5px; color:var(--soft); margin-top:4px; }
.pair { display:grid; grid-template-columns:repeat(auto-fit,minmax(min(100%,460px),1fr)); gap:14px; }
.panel { overflow-x:auto; } .panel h3 { font-size:15px; margin:0 0 10px; }
table { border-collapse:collapse; width:100%; font-size:15px; font-variant-numeric:tabular-nums; }
th,td { padding:7px 10px; text-align:left; border-bottom:1px solid var(--rule); } tr:last-child>* { border-bottom:0; }
thead th { font-size:13px; color:var(--soft); font-weight:600; } td.num,th.num { text-align:right; }
td.best { font-weight:650; color:var(--long); }
table.confusion { width:auto; font-size:14px; } .confusion th,.confusion td { border:0; padding:0; }
.confusion th { font-weight:500; color:var(--soft); } .confusion th.up { height:112px; vertical-align:bottom; }
.confusion th.up span { writing-mode:vertical-rl; transform:rotate(180deg); padding-top:6px; }
.confusion th.side { padding-right:10px; text-align:right; white-space:nowrap; }
.confusion .cell { width:46px; height:38px; text-align:center; border:2px solid var(--card); border-radius:7px; }
.confusion .hit { background:rgba(var(--hit),calc(.07 + .93*var(--share))); }
.confusion .miss { background:rgba(var(--miss),calc(.02 + 1.1*var(--share))); }
.confusion .hit.strong { color:var(--card); font-weight:600; } .zero { color:var(--rule); }
.confusion td.num { padding-left:10px; color:var(--soft); }
svg { width:100%; height:auto; display:block; } svg text { fill:var(--soft); font-size:12px; }
svg text.title { fill:var(--ink); font-size:14px; font-weight:600; } svg text.legend { fill:var(--ink); }
.grid { stroke:var(--rule); stroke-width:1; } .line { fill:none; stroke-width:2.4; stroke-linejoin:round; }
.line.long { stroke:var(--long); } .line.orig { stroke:var(--orig); } .line.third { stroke:var(--third); }
.dot.long { fill:var(--long); } .dot.orig { fill:var(--orig); } .dot.third { fill:var(--third); }
pre { background:var(--code); color:var(--codeink); border-radius:10px; padding:14px 16px; overflow-x:auto;
  margin:6px 0 18px; font:13.5px/1.55 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace; }
code { font:.92em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace; }
footer { margin-top:48px; color:var(--soft); font-size:13.5px; }
"""
