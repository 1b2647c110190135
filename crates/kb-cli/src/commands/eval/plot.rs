//! A plot of quality against latency, as SVG.

use crate::exit::{Error, Result};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde_json::Value;
use std::path::Path;

const SIZE: (u32, u32) = (960, 540);
const LEGEND: u32 = 300;
/// The characters of an entry of the legend.
const LONGEST: usize = 44;
const ORDINARY: RGBColor = RGBColor(70, 110, 180);
const PRESENT: RGBColor = RGBColor(120, 120, 120);
const PROPOSED: RGBColor = RGBColor(30, 140, 70);

pub struct Plot {
    title: String,
    /// How many documents of an answer count.
    k: String,
    points: Vec<Point>,
}

/// Settings, and what was measured with them.
#[derive(Debug, Clone, PartialEq)]
struct Point {
    name: String,
    /// The median of the milliseconds that an answer takes.
    latency: f64,
    /// nDCG.
    quality: f64,
    is_present: bool,
    is_proposed: bool,
}

impl Point {
    fn of(row: &Value, name: String) -> Point {
        let number = |key: &str| row[key].as_f64().filter(|number| number.is_finite()).unwrap_or(0.0);
        Point {
            name,
            latency: number("p50_ms"),
            quality: number("ndcg"),
            is_present: row["present"] == true,
            is_proposed: row["proposed"] == true,
        }
    }

    fn colour(&self) -> RGBColor {
        match (self.is_proposed, self.is_present) {
            (true, _) => PROPOSED,
            (false, true) => PRESENT,
            (false, false) => ORDINARY,
        }
    }

    fn entry(&self, number: usize) -> String {
        let mark = match (self.is_proposed, self.is_present) {
            (true, true) => "present, proposed: ",
            (true, false) => "proposed: ",
            (false, true) => "present: ",
            (false, false) => "",
        };
        let mut entry = format!("{number}  {mark}{}", self.name);
        if entry.chars().count() > LONGEST {
            entry = entry.chars().take(LONGEST - 1).collect::<String>() + "…";
        }
        entry
    }
}

impl Plot {
    /// The plot of the rows of kb.evaluate or kb.tune.
    pub fn of(title: String, rows: &[Value], names: impl Iterator<Item = String>) -> Plot {
        let k = rows.first().map(|row| row["k"].to_string()).unwrap_or_default();
        Plot { title, k, points: rows.iter().zip(names).map(|(row, name)| Point::of(row, name)).collect() }
    }

    pub fn write(&self, file: &Path) -> Result<()> {
        let svg = self.svg().map_err(|error| Error::failed(format!("the plot cannot be drawn: {error}")))?;
        std::fs::write(file, svg).map_err(|error| Error::file(file, &error))
    }

    fn svg(&self) -> std::result::Result<String, Box<dyn std::error::Error>> {
        let mut svg = String::new();
        {
            let whole = SVGBackend::with_string(&mut svg, SIZE).into_drawing_area();
            whole.fill(&WHITE)?;
            let (left, right) = whole.split_horizontally(SIZE.0 - LEGEND);
            let (from, to) = range(self.points.iter().map(|point| point.quality), 0.02);
            let slowest = self.points.iter().map(|point| point.latency).fold(0.0, f64::max);
            let mut chart = ChartBuilder::on(&left)
                .caption(&self.title, ("sans-serif", 18))
                .margin(12)
                .x_label_area_size(44)
                .y_label_area_size(56)
                .build_cartesian_2d(0.0..(slowest * 1.1).max(1.0), from.max(0.0)..to)?;
            chart
                .configure_mesh()
                .x_desc("milliseconds of an answer (median)")
                .y_desc(format!("nDCG@{}", self.k))
                .max_light_lines(1)
                .bold_line_style(RGBColor(225, 225, 225))
                .draw()?;
            // Nothing is both faster and better than what is on this line.
            let best = best(&self.points);
            chart.draw_series(LineSeries::new(best, ORDINARY.mix(0.4)))?;
            chart.draw_series(
                self.points
                    .iter()
                    .map(|point| Circle::new((point.latency, point.quality), 5, point.colour().filled())),
            )?;
            chart.draw_series((1..).zip(&self.points).map(|(number, point)| {
                let style =
                    ("sans-serif", 13).into_font().color(&BLACK).pos(Pos::new(HPos::Left, VPos::Bottom));
                EmptyElement::at((point.latency, point.quality))
                    + Text::new(format!("{number}"), (6, -4), style)
            }))?;
            for (number, point) in (1..).zip(&self.points) {
                let style = ("sans-serif", 13).into_font().color(&point.colour());
                right.draw(&Text::new(point.entry(number), (8, 40 + 20 * (number as i32 - 1)), style))?;
            }
            whole.present()?;
        }
        Ok(svg)
    }
}

/// The points that no other point is both faster and better than, from the fastest to the best.
fn best(points: &[Point]) -> Vec<(f64, f64)> {
    let mut sorted: Vec<(f64, f64)> = points.iter().map(|point| (point.latency, point.quality)).collect();
    sorted.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
    let mut best: Vec<(f64, f64)> = Vec::new();
    for point in sorted {
        if best.last().is_none_or(|last| point.1 > last.1) {
            best.push(point);
        }
    }
    best
}

/// The range of values, with room at both ends, of this length at least.
fn range(values: impl Iterator<Item = f64> + Clone, least: f64) -> (f64, f64) {
    let low = values.clone().fold(f64::INFINITY, f64::min);
    let high = values.fold(f64::NEG_INFINITY, f64::max);
    if low > high {
        return (0.0, 1.0);
    }
    let room = ((high - low) * 0.15).max(least / 2.0);
    (low - room, high + room)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn point(name: &str, latency: f64, quality: f64) -> Point {
        Point { name: name.into(), latency, quality, is_present: false, is_proposed: false }
    }

    #[test]
    fn the_line_of_the_best_leaves_out_what_is_slower_and_worse() {
        let points =
            [point("a", 1.0, 0.3), point("b", 2.0, 0.2), point("c", 3.0, 0.4), point("d", 3.0, 0.35)];
        assert_eq!(best(&points), [(1.0, 0.3), (3.0, 0.4)]);
        assert!(best(&[]).is_empty());
    }

    #[test]
    fn a_plot_names_every_point_and_escapes_what_it_names() {
        let mut points = vec![point("<b>&\"", 1.0, 0.5), point(&"long ".repeat(50), 0.0, 0.5)];
        points[0].is_proposed = true;
        let svg = Plot { title: "k & <s>".into(), k: "3".into(), points }.svg().unwrap();
        assert!(svg.starts_with("<svg") && svg.trim_end().ends_with("</svg>"));
        assert!(svg.contains("&lt;b&gt;&amp;") && !svg.contains("<b>"), "{svg}");
        assert!(svg.contains("k &amp; &lt;s&gt;"), "{svg}");
        assert_eq!(svg.matches("<circle").count(), 2);
        assert!(Plot { title: String::new(), k: String::new(), points: Vec::new() }.svg().is_ok());
    }
}
