//! How rows of a table and images become numbers: the columns that a candidate declares, and what was fitted to scale
//! them.

use alloc::string::String;
use alloc::vec::Vec;

use crate::field::Range;
use crate::number::Finite;

crate::record! {
    /// A column of a table. Each file has exactly the declared columns, named by its first line, in any order.
    pub struct Column {
        /// Its name in the first line of each file.
        name: String,
        /// What it holds.
        holds: Holds,
    }
}

crate::choice! {
    /// What a column holds. Cells are taken as they are: nothing is trimmed, and letters keep their case.
    pub enum Holds {
        /// An input: a number, rounded to binary32. It makes one input.
        Number "number" {
            /// What an empty cell is.
            missing: Missing,
            /// What a cell `nan`, `inf` or `-inf` is.
            non_finite: NonFiniteCells,
        },
        /// An input: one of some levels. It makes one input for each level, 1 for the level of the row and 0 for the others.
        Category "category" {
            /// The levels, in the order of their inputs.
            levels: Vec<String>,
            /// What an empty cell is.
            missing: Missing,
        },
        /// What is predicted: a number, rounded to binary32.
        TargetNumber "target-number" {
            /// What a cell `nan`, `inf` or `-inf` is.
            non_finite: NonFiniteCells,
        },
        /// What is predicted: one of some levels.
        TargetCategory "target-category" {
            /// The levels, in the order of the classes.
            levels: Vec<String>,
        },
        /// The name of the example: no two rows of a split share it. It is no input.
        Id "id" {},
        /// Something that is not read.
        Ignored "ignored" {},
    }
}

crate::words! {
    /// What an empty cell is.
    pub enum Missing {
        /// A fault of the file.
        Refuse "refuse",
        /// A value that is not known: a number becomes the mean of the training split, a category 0 at every level.
        Fill "fill",
    }
}

crate::words! {
    /// What a cell `nan`, `inf` or `-inf` is; letters may be large or small.
    pub enum NonFiniteCells {
        /// A fault of the file.
        Refuse "refuse",
        /// The value that it names, which reaches the model: the input stage of the trace counts it.
        Keep "keep",
    }
}

crate::words! {
    /// Which numbers are brought to mean 0 and standard deviation 1, by what was fitted on the training split alone.
    pub enum Scaling {
        /// None: numbers stay as they are.
        None "none",
        /// The inputs: each number column by itself, all values of an image together.
        Inputs "inputs",
        /// The inputs and a target that is a number. Measured errors are in the target's own unit all the same.
        InputsAndTarget "inputs-and-target",
    }
}

crate::record! {
    /// What was fitted on the finite values of one number column in the training split. All images together are one column, called `pixels`, and so are all inputs in tensors, by the name of theirs.
    pub struct Fitted {
        /// The column.
        column: String,
        /// Finite values that it was fitted on.
        count: u64 [Range::from(1.0)],
        /// Their mean.
        mean: Finite,
        /// Their standard deviation, with the count as divisor; 1 where all are equal.
        deviation: Finite [Range::above(0.0)],
    }
}

crate::record! {
    /// How images are changed at random when they are trained on, and at no other time. Each time an image is seen it is drawn anew, from the run's seed, the number of the micro-batch and the place in it; first it is mirrored, then shifted, then a part is cut out. What comes in, or is cut out, is 0 as in a file.
    pub struct Augmentation {
        /// Pixels by which an image is shifted at most, up or down and to the left or right, every number of pixels alike often; 0 shifts none.
        shift: u64 [Range::from(0.0).to(65_536.0)],
        /// Whether left and right change places, one time in two.
        mirror: bool,
        /// Pixels of a side of the square that is cut out, whose middle is any pixel of the image; what lies outside of the image is not cut (DeVries and Taylor, "Improved Regularization of Convolutional Neural Networks with Cutout", 2017). 0 cuts none.
        cut_out: u64 [Range::from(0.0).to(65_536.0)],
    }
}

impl Copy for Augmentation {}

impl Augmentation {
    /// Images as they are.
    pub const NONE: Self = Self { shift: 0, mirror: false, cut_out: 0 };

    /// In words, with a comma in front; nothing where images stay as they are.
    pub fn describe(&self) -> String {
        let Self { shift, mirror, cut_out } = *self;
        let parts = [
            (mirror, String::from(", mirrored one time in two")),
            (shift > 0, alloc::format!(", shifted by up to {shift}")),
            (cut_out > 0, alloc::format!(", a square of {cut_out} cut out")),
        ];
        parts.into_iter().filter(|(there, _)| *there).map(|(_, text)| text).collect()
    }
}

/// What a model predicts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// A number.
    Number,
    /// One of so many classes.
    Classes(u64),
}

impl Column {
    /// Inputs that it makes.
    pub const fn inputs(&self) -> u64 {
        match &self.holds {
            Holds::Number { .. } => 1,
            Holds::Category { levels, .. } => levels.len() as u64,
            _ => 0,
        }
    }

    /// What it is the target of, if it is one.
    pub const fn target(&self) -> Option<Target> {
        match &self.holds {
            Holds::TargetNumber { .. } => Some(Target::Number),
            Holds::TargetCategory { levels } => Some(Target::Classes(levels.len() as u64)),
            _ => None,
        }
    }
}
