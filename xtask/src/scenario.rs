//! Three replicas under one limit, with and without Redis: `examples/scenario`, run and drawn.

use std::fs;
use std::path::Path;

use crate::plots::svg::{STYLE, push, text};
use crate::step;

const WIDTH: u32 = 740;

/// The left and the right end of the axes.
const LEFT: u32 = 46;
const RIGHT: u32 = LEFT + BARS * BAR_WIDTH;

/// Four bars a second for 12 s.
const BARS: u32 = 48;
const BARS_PER_SECOND: u32 = 4;
const BAR_WIDTH: u32 = 14;

/// One run below the other.
const TOP: u32 = 62;
const PANEL: u32 = 126;
const PANEL_HEIGHT: u32 = 80;

const LIMIT: u32 = 600;
const RATE_MAX: u32 = 1_200;

/// One run, as the example writes it.
#[derive(Debug, PartialEq, Eq)]
struct Run {
    title: String,
    /// From which to which second Redis was away.
    outage: Option<(u32, u32)>,
    /// What reached the downstream in each 250 ms.
    counts: Vec<u32>,
}

pub(crate) fn run() -> Result<(), String> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let counted = root.join("target/scenario.txt");
    let mut command = step::cargo();
    command
        .args(["run", "--release", "--locked", "--package", "tollgate-scenario", "--"])
        .arg(&counted)
        .current_dir(&root);
    let ran = step::run(&mut command);
    let written =
        fs::read_to_string(&counted).map_err(|error| format!("{}: {error}", counted.display()))?;
    let runs = parse(&written).ok_or_else(|| format!("{} is unreadable", counted.display()))?;
    let folder = root.join("docs/img");
    let file = folder.join("scenario.svg");
    fs::create_dir_all(&folder)
        .and_then(|()| fs::write(&file, draw(&runs)))
        .map_err(|error| format!("{}: {error}", file.display()))?;
    println!("wrote docs/img/scenario.svg");
    ran
}

fn parse(written: &str) -> Option<Vec<Run>> {
    let lines: Vec<&str> = written.lines().collect();
    lines.chunks(3).map(parse_run).collect()
}

fn parse_run(lines: &[&str]) -> Option<Run> {
    let [title, outage, counts] = lines else { return None };
    let outage = match *outage {
        "-" => None,
        outage => {
            let (from, to) = outage.split_once(' ')?;
            Some((from.parse().ok()?, to.parse().ok()?))
        }
    };
    let counts: Option<Vec<u32>> = counts.split(' ').map(|count| count.parse().ok()).collect();
    Some(Run { title: (*title).to_owned(), outage, counts: counts? })
}

fn draw(runs: &[Run]) -> String {
    let height = TOP + PANEL * u32::try_from(runs.len()).unwrap_or(0) + 4;
    let title = "600/s for three replicas: what reaches the downstream";
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" \
         width=\"{WIDTH}\" height=\"{height}\" role=\"img\">\n  <title>{title}</title>\n  \
         <desc>{}</desc>\n{STYLE}  \
         <rect class=\"page\" width=\"{WIDTH}\" height=\"{height}\" rx=\"6\"/>\n",
        runs.iter().map(summary).collect::<Vec<_>>().join(" "),
    );
    text(&mut svg, "title", (LEFT, 22), title);
    push(
        &mut svg,
        format_args!("<rect class=\"bar\" x=\"{LEFT}\" y=\"34\" width=\"10\" height=\"10\"/>"),
    );
    text(&mut svg, "key", (LEFT + 15, 43), "per second, in each 250 ms");
    push(&mut svg, format_args!("<path class=\"limit\" d=\"M{} 39h22\"/>", LEFT + 200));
    text(&mut svg, "key", (LEFT + 227, 43), "limit");
    push(
        &mut svg,
        format_args!(
            "<rect class=\"offered\" x=\"{}\" y=\"34\" width=\"10\" height=\"10\"/>",
            LEFT + 290
        ),
    );
    text(&mut svg, "key", (LEFT + 305, 43), "without Redis");
    for (run, index) in runs.iter().zip(0..) {
        panel(&mut svg, run, TOP + PANEL * index);
    }
    svg.push_str("</svg>\n");
    svg
}

/// The mean after the first second, which has the burst.
fn mean(run: &Run) -> u32 {
    let steady = run.counts.get(BARS_PER_SECOND as usize..).unwrap_or_default();
    let bars = u32::try_from(steady.len()).unwrap_or(u32::MAX).max(1);
    (steady.iter().sum::<u32>() * BARS_PER_SECOND + bars / 2) / bars
}

fn summary(run: &Run) -> String {
    format!("{}: {}/s after the burst.", run.title, mean(run))
}

fn panel(svg: &mut String, run: &Run, top: u32) {
    let bottom = top + 22 + PANEL_HEIGHT;
    text(svg, "run", (LEFT, top + 12), &run.title);
    text(svg, "end", (RIGHT, top + 12), &format!("{}/s after the burst", mean(run)));
    if let Some((from, to)) = run.outage {
        let second = BARS_PER_SECOND * BAR_WIDTH;
        push(
            svg,
            format_args!(
                "<rect class=\"offered\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{PANEL_HEIGHT}\"/>",
                LEFT + from * second,
                bottom - PANEL_HEIGHT,
                to.saturating_sub(from) * second
            ),
        );
    }
    for (count, bar) in run.counts.iter().zip(0..BARS) {
        let height = height_of(count * BARS_PER_SECOND);
        push(
            svg,
            format_args!(
                "<rect class=\"bar\" x=\"{}\" y=\"{}\" width=\"{}\" height=\"{height}\"/>",
                LEFT + bar * BAR_WIDTH + 1,
                bottom - height,
                BAR_WIDTH - 2
            ),
        );
    }
    for (rate, class) in [(0, "axis"), (LIMIT, "limit"), (RATE_MAX, "grid")] {
        let y = bottom - height_of(rate);
        push(svg, format_args!("<path class=\"{class}\" d=\"M{LEFT} {y}H{RIGHT}\"/>"));
        text(svg, "end", (LEFT - 8, y + 4), &rate.to_string());
    }
    for second in (0..=BARS / BARS_PER_SECOND).step_by(2) {
        let x = LEFT + second * BARS_PER_SECOND * BAR_WIDTH;
        push(svg, format_args!("<path class=\"axis\" d=\"M{x} {bottom}v4\"/>"));
        text(svg, "middle", (x, bottom + 17), &format!("{second} s"));
    }
}

fn height_of(rate: u32) -> u32 {
    rate.min(RATE_MAX) * PANEL_HEIGHT / RATE_MAX
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_example_writes_is_read() {
        let written = "one\n-\n150 150 150 150 150 75\nanother\n4 8\n1 2\n";
        let runs = parse(written).unwrap();
        assert_eq!(runs[0].title, "one");
        assert_eq!((runs[1].outage, &runs[1].counts[..]), (Some((4, 8)), &[1, 2][..]));
        assert_eq!(mean(&runs[0]), 450, "150 and 75 in a quarter of a second each");
        assert_eq!(parse("one\n-\n"), None);
        assert_eq!(parse("one\nnow then\n1"), None);
    }

    #[test]
    fn every_run_has_a_panel() {
        let runs = parse("one\n-\n150\ntwo\n4 8\n1200 150\n").unwrap();
        let svg = draw(&runs);
        assert_eq!(svg.matches("class=\"limit\"").count(), 3, "two and the key");
        assert_eq!(svg.matches("class=\"offered\"").count(), 2, "one and the key");
        assert!(svg.contains("height=\"80\""), "a bar is cut off at the top");
    }
}
