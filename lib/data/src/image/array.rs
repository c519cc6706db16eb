//! Numbers with dimensions, as files of images and of labels hold them.

/// What each number is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A byte.
    Bytes,
    /// A binary32 in big-endian order.
    FloatsBig,
    /// A binary32 in little-endian order.
    FloatsLittle,
    /// A whole number of 64 bits with a sign, in little-endian order.
    Integers,
}

impl Kind {
    /// Bytes of one.
    const fn size(self) -> usize {
        match self {
            Self::Bytes => 1,
            Self::FloatsBig | Self::FloatsLittle => 4,
            Self::Integers => 8,
        }
    }
}

/// A file taken apart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Array<'a> {
    pub(crate) kind: Kind,
    pub(crate) dimensions: Vec<usize>,
    pub(crate) values: &'a [u8],
}

impl<'a> Array<'a> {
    /// The numbers in `values`, which are exactly as many as the dimensions say.
    pub(crate) fn new(kind: Kind, dimensions: Vec<usize>, values: &'a [u8]) -> Result<Self, String> {
        let due = dimensions.iter().try_fold(kind.size(), |all: usize, dimension| all.checked_mul(*dimension));
        if due != Some(values.len()) {
            let due = due.map_or_else(|| "more bytes than there can be".into(), |due| format!("{due} bytes"));
            return Err(format!("its dimensions {dimensions:?} make {due}, and {} are behind them", values.len()));
        }
        Ok(Self { kind, dimensions, values })
    }

    pub(crate) fn is_labels(&self) -> bool {
        self.dimensions.len() == 1
    }

    pub(crate) fn samples(&self) -> usize {
        self.dimensions.first().copied().unwrap_or(0)
    }

    /// Channels, height and width.
    pub(crate) fn shape(&self) -> Option<[u64; 3]> {
        match *self.dimensions.as_slice() {
            [_, height, width] => Some([1, height as u64, width as u64]),
            [_, channels, height, width] => Some([channels as u64, height as u64, width as u64]),
            _ => None,
        }
    }

    /// The numbers of images.
    pub(crate) fn floats(&self) -> Vec<f32> {
        let chunks = || self.values.as_chunks::<4>().0.iter();
        match self.kind {
            Kind::Bytes => self.values.iter().map(|byte| f32::from(*byte)).collect(),
            Kind::FloatsBig => chunks().map(|chunk| f32::from_be_bytes(*chunk)).collect(),
            Kind::FloatsLittle => chunks().map(|chunk| f32::from_le_bytes(*chunk)).collect(),
            Kind::Integers => Vec::new(),
        }
    }

    /// The numbers of labels; `None` when they are no whole ones.
    pub(crate) fn labels(&self) -> Option<Vec<i64>> {
        match self.kind {
            Kind::Bytes => Some(self.values.iter().map(|byte| i64::from(*byte)).collect()),
            Kind::Integers => {
                let (chunks, _) = self.values.as_chunks::<8>();
                Some(chunks.iter().map(|chunk| i64::from_le_bytes(*chunk)).collect())
            }
            Kind::FloatsBig | Kind::FloatsLittle => None,
        }
    }
}
