//! Progress of long work, on standard error only.

use std::io::{self, IsTerminal, Write};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::common::{Common, ProgressMode};

/// Shows how far long work has come: a bar on a terminal, a line from time to time, or nothing.
#[derive(Debug)]
pub struct Progress {
    view: View,
}

#[derive(Debug)]
enum View {
    Bar(ProgressBar),
    Plain { label: String, total: u64, last: Option<Instant> },
    Silent,
}

/// Plain lines come no more often than this.
const PAUSE: Duration = Duration::from_secs(2);

impl Progress {
    /// Progress of `label` through `total` units, called `unit`, as the flags ask.
    pub fn new(common: &Common, label: &str, total: u64, unit: &str) -> Self {
        let bar = common.progress == ProgressMode::Auto && io::stderr().is_terminal();
        let view = match (common.quiet, common.progress) {
            (true, _) | (_, ProgressMode::None) => View::Silent,
            (_, ProgressMode::Auto) if bar => View::Bar(styled(label, total, unit)),
            (_, ProgressMode::Auto) => View::Silent,
            (_, ProgressMode::Plain) => View::Plain { label: label.into(), total, last: None },
        };
        Self { view }
    }

    /// `done` units are done; `message` says something about them, such as the loss.
    pub fn update(&mut self, done: u64, message: &str) {
        match &mut self.view {
            View::Bar(bar) => {
                bar.set_position(done);
                bar.set_message(message.to_string());
            }
            View::Plain { label, total, last } => {
                if done < *total && last.is_some_and(|last| last.elapsed() < PAUSE) {
                    return;
                }
                *last = Some(Instant::now());
                drop(writeln!(io::stderr(), "{label}: {done}/{total} {message}"));
            }
            View::Silent => {}
        }
    }

    /// Removes the bar.
    pub fn finish(self) {
        if let View::Bar(bar) = self.view {
            bar.finish_and_clear();
        }
    }
}

fn styled(label: &str, total: u64, unit: &str) -> ProgressBar {
    let bar = ProgressBar::with_draw_target(Some(total), ProgressDrawTarget::stderr());
    let template = format!("{{prefix}} {{bar:30}} {{pos}}/{{len}} {unit} {{msg}} {{eta}} left");
    bar.set_style(ProgressStyle::with_template(&template).unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.set_prefix(label.to_string());
    bar
}
