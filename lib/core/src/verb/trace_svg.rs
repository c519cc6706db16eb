//! Two traces as a picture, in SVG 1.1: the losses over the steps, and below them where each component differs.
//!
//! The same traces give the same bytes, so a picture can be compared like any other file.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt::Write as _;

use crate::manifest::replay::Component;
use crate::manifest::trace::Step;
use crate::number::Finite;
use crate::verb::compare;

const WIDTH: f64 = 900.0;
const LEFT: f64 = 120.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 48.0;
/// Height of the panel of losses, and of the row of one component.
const PANEL: f64 = 220.0;
const ROW: f64 = 16.0;
/// Colours of the first and of the second trace, from the palette of Okabe and Ito, which colour-blind people can tell
/// apart; and of what differs.
const COLOURS: [&str; 3] = ["#0072b2", "#e69f00", "#d55e00"];

/// The picture of two traces with these names. A second trace without steps is left out.
pub fn comparison(names: [&str; 2], first: &[Step], second: &[Step]) -> String {
    let last = first.iter().chain(second).map(|step| step.step).max().unwrap_or(1);
    let losses = first.iter().chain(second).filter_map(|step| step.loss).map(Finite::get);
    let (low, high) =
        losses.fold((f64::INFINITY, f64::NEG_INFINITY), |(low, high), loss| (low.min(loss), high.max(loss)));
    let frame = Frame { last, low, high };
    let parted: Vec<(u64, Vec<Component>)> = first
        .iter()
        .zip(second)
        .filter_map(|(one, other)| compare::steps(one, other).map(|divergence| (one.step, divergence.differing)))
        .collect();
    #[expect(clippy::cast_precision_loss, reason = "ten rows")]
    let height = TOP + PANEL + 40.0 + ROW * Component::ALL.len() as f64 + 16.0;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" font-family=\"sans-serif\" font-size=\"11\">\n\
         <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
    );
    heading(&mut svg, names, !second.is_empty(), parted.first());
    frame.axes(&mut svg);
    for (steps, colour) in [(first, COLOURS[0]), (second, COLOURS[1])] {
        frame.line(&mut svg, steps, colour);
    }
    frame.rows(&mut svg, &parted);
    svg.push_str("</svg>\n");
    svg
}

fn heading(svg: &mut String, names: [&str; 2], both: bool, parted: Option<&(u64, Vec<Component>)>) {
    let said = match parted {
        Some((step, differing)) => {
            let component = differing.first().map_or("", |component| component.word());
            format!("part at step {step}: {component}")
        }
        None if both => "equal in every bit".into(),
        None => String::new(),
    };
    text(svg, LEFT, 16.0, "start", &said);
    let count = if both { 2 } else { 1 };
    for (place, (name, colour)) in [32.0, 44.0].into_iter().zip(names.into_iter().zip(COLOURS)).take(count) {
        put(
            svg,
            format_args!("<rect x=\"{LEFT}\" y=\"{:.1}\" width=\"14\" height=\"3\" fill=\"{colour}\"/>\n", place - 5.0),
        );
        text(svg, LEFT + 20.0, place, "start", name);
    }
}

/// The scales of the picture.
struct Frame {
    last: u64,
    low: f64,
    high: f64,
}

impl Frame {
    #[expect(clippy::cast_precision_loss, reason = "a place in a picture")]
    fn x(&self, step: u64) -> f64 {
        let share = (step.saturating_sub(1)) as f64 / (self.last.saturating_sub(1)).max(1) as f64;
        LEFT + share * (WIDTH - LEFT - RIGHT)
    }

    fn y(&self, loss: f64) -> f64 {
        let range = if self.high > self.low { self.high - self.low } else { 1.0 };
        TOP + PANEL - (loss - self.low) / range * PANEL
    }

    fn axes(&self, svg: &mut String) {
        let (bottom, right) = (TOP + PANEL, WIDTH - RIGHT);
        put(svg, format_args!("<path d=\"M{LEFT} {TOP}V{bottom}H{right}\" fill=\"none\" stroke=\"#888\"/>\n"));
        if self.high >= self.low {
            text(svg, LEFT - 6.0, TOP + 8.0, "end", &format!("{:.4}", self.high));
            text(svg, LEFT - 6.0, bottom, "end", &format!("{:.4}", self.low));
        }
        text(svg, LEFT - 6.0, TOP + PANEL / 2.0, "end", "loss");
        text(svg, LEFT, bottom + 14.0, "start", "step 1");
        text(svg, right, bottom + 14.0, "end", &format!("step {}", self.last));
    }

    /// One line of losses; where one is not finite, the line is broken.
    fn line(&self, svg: &mut String, steps: &[Step], colour: &str) {
        let (mut path, mut pen) = (String::new(), 'M');
        for step in steps {
            match step.loss {
                Some(loss) => {
                    put(&mut path, format_args!("{pen}{:.2} {:.2}", self.x(step.step), self.y(loss.get())));
                    pen = 'L';
                }
                None => pen = 'M',
            }
        }
        if !path.is_empty() {
            put(svg, format_args!("<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\"/>\n"));
        }
    }

    /// A row a component, with a mark at each step at which it differs; marks on one pixel are drawn once.
    fn rows(&self, svg: &mut String, parted: &[(u64, Vec<Component>)]) {
        let mut y = TOP + PANEL + 36.0;
        for component in Component::ALL {
            text(svg, LEFT - 6.0, y + 9.0, "end", component.word());
            let width = WIDTH - LEFT - RIGHT;
            put(svg, format_args!("<rect x=\"{LEFT}\" y=\"{y:.1}\" width=\"{width}\" height=\"10\" fill=\"#eee\"/>\n"));
            let mut drawn = f64::NEG_INFINITY;
            for (step, _) in parted.iter().filter(|(_, differing)| differing.contains(component)) {
                let x = self.x(*step);
                if x - drawn >= 1.0 {
                    let colour = COLOURS[2];
                    put(
                        svg,
                        format_args!("<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"2\" height=\"10\" fill=\"{colour}\"/>\n"),
                    );
                    drawn = x;
                }
            }
            y += ROW;
        }
    }
}

fn text(svg: &mut String, x: f64, y: f64, anchor: &str, said: &str) {
    let said = said.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    put(svg, format_args!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{said}</text>\n"));
}

fn put(svg: &mut String, part: core::fmt::Arguments<'_>) {
    svg.write_fmt(part).unwrap_or_else(|_| unreachable!("a string takes any text"));
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::Digest;
    use crate::number::Bits32;

    fn steps(losses: &[f32]) -> Vec<Step> {
        let digest = Digest::of(b"x");
        let step = |(step, loss): (u64, &f32)| Step {
            step,
            epoch: 0,
            micro_batches: 1,
            samples: digest,
            learning_rate: Finite::new(0.5).unwrap(),
            loss: Finite::new(f64::from(*loss)),
            loss_bits: Bits32::of(*loss),
            loss_scale: Finite::new(1.0).unwrap(),
            gradient_norm: None,
            gradient_norm_bits: Bits32::of(f32::NAN),
            stages: Vec::new(),
            gradients: digest,
            parameters: digest,
            optimizer: digest,
            averaged: None,
            generator: digest,
            cursor: digest,
            skipped: false,
            chain: digest,
        };
        (1..).zip(losses).map(step).collect()
    }

    #[test]
    fn the_picture_says_where_two_traces_part_and_marks_it() {
        let svg = comparison(["a", "<b>"], &steps(&[3.0, 2.0, 1.0]), &steps(&[3.0, 2.5, 1.0]));
        assert!(svg.contains("part at step 2: loss") && svg.contains("&lt;b&gt;"), "{svg}");
        assert_eq!(svg.matches(COLOURS[2]).count(), 1, "one mark");
        assert_eq!(svg.matches("stroke-width").count(), 2, "two lines");
        let equal = comparison(["a", "b"], &steps(&[3.0, 2.0]), &steps(&[3.0, 2.0]));
        assert!(equal.contains("equal in every bit") && !equal.contains(COLOURS[2]));
    }

    #[test]
    fn losses_that_are_not_finite_break_the_line_and_nothing_else() {
        let broken = steps(&[3.0, f32::NAN, 1.0, 0.5]);
        let svg = comparison(["a", "b"], &broken, &[]);
        let path = svg.lines().find(|line| line.contains("stroke-width")).unwrap();
        assert_eq!((path.matches('M').count(), path.matches('L').count()), (2, 1), "{path}");
        assert!(!svg.contains("NaN") && !svg.contains("inf"));
        assert!(!comparison(["a", "b"], &[], &[]).contains("NaN"));
    }
}
