//! What all drawings have in common.

use std::fmt::Write;

/// Colours are repeated rather than named by variables, which not every viewer knows.
pub(crate) const STYLE: &str = "\
  <style>
    text { font: 12px system-ui, sans-serif; fill: #59636e; }
    .title { font-size: 14px; font-weight: 600; fill: #1f2328; }
    .page { fill: #ffffff; }
    .grid { stroke: #e4e8ec; }
    .axis { stroke: #59636e; }
    .limit { stroke: #1f2328; stroke-dasharray: 5 4; }
    .offered { fill: #d1d9e0; }
    .bar { fill: #4493d8; }
    .line { fill: none; stroke: #b35900; stroke-width: 2; }
    .end { text-anchor: end; }
    .middle { text-anchor: middle; }
    @media (prefers-color-scheme: dark) {
      text { fill: #9198a1; }
      .title { fill: #f0f6fc; }
      .page { fill: #0d1117; }
      .grid { stroke: #262c36; }
      .axis { stroke: #9198a1; }
      .limit { stroke: #f0f6fc; }
      .offered { fill: #3d444d; }
      .bar { fill: #3f7fc4; }
      .line { stroke: #f0a050; }
    }
  </style>
";

/// Adds an element.
pub(crate) fn push(svg: &mut String, arguments: std::fmt::Arguments<'_>) {
    // Writing to a String cannot fail.
    let _ = writeln!(svg, "  {arguments}");
}

/// Adds a text.
pub(crate) fn text(svg: &mut String, class: &str, (x, y): (u32, u32), content: &str) {
    push(svg, format_args!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\">{content}</text>"));
}
