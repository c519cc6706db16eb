//! The bytes of tensors where they lie, and flat rows of numbers that many tensors share.

use std::slice;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use tch::{Device, Kind, Tensor};

use crate::shim::{TorchError, call, xt_take_gradient};

/// Alignment of every tensor inside a [`Flat`], in values: 64 bytes, as libtorch aligns what it allocates. Products of a
/// matrix and a vector give other bits at other alignments.
pub const ALIGNMENT: usize = 16;

/// The values of a contiguous float32 tensor on the processor, where they lie.
///
/// tch takes `&mut` for operations that write in place, so only through another handle on the same memory could the
/// values change while the slice is held: do not do that.
pub fn floats(tensor: &Tensor) -> Result<&[f32], TorchError> {
    let count = plain(tensor, Kind::Float)?;
    if count == 0 {
        return Ok(&[]);
    }
    // SAFETY: `plain` found a contiguous float32 tensor on the processor, whose memory lives as long as the borrow.
    Ok(unsafe { slice::from_raw_parts(tensor.data_ptr().cast::<f32>(), count) })
}

/// The bytes of float32 values, in the machine's order (little-endian on x86-64).
pub fn bytes(values: &[f32]) -> &[u8] {
    // SAFETY: every byte of a float is initialised, and u8 has no alignment.
    unsafe { slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(values)) }
}

/// Number of elements of a tensor whose bytes may be looked at.
fn plain(tensor: &Tensor, kind: Kind) -> Result<usize, TorchError> {
    if !tensor.defined() {
        return Err(TorchError::NotPlain("it is undefined".into()));
    }
    let found = tensor.f_kind()?;
    if found != kind {
        return Err(TorchError::NotPlain(format!("it holds {found:?}, not {kind:?}")));
    }
    if tensor.device() != Device::Cpu {
        return Err(TorchError::NotPlain(format!("it lies on {:?}", tensor.device())));
    }
    if !tensor.is_contiguous() {
        return Err(TorchError::NotPlain("it is not contiguous".into()));
    }
    Ok(tensor.numel())
}

/// A row of float32 values that many tensors share, each with its own span of it.
#[derive(Debug)]
pub struct Flat {
    values: Tensor,
    lent: Arc<Lendings>,
}

/// How many loans of a row are out.
#[derive(Debug, Default)]
struct Lendings {
    out: Mutex<usize>,
    returned: Condvar,
}

/// A row that is lent to another thread, which may read it until it drops this.
#[derive(Debug)]
pub struct Lent {
    values: Tensor,
    lent: Arc<Lendings>,
}

impl Lent {
    /// All values, which do not change while they are lent.
    pub fn values(&self) -> &[f32] {
        // SAFETY: `Flat` holds a contiguous float32 tensor on the processor, which is never resized, and its owner
        // waits for the end of this loan before it gives out a slice to change them.
        unsafe { slice::from_raw_parts(self.values.data_ptr().cast::<f32>(), self.values.numel()) }
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        *self.lent.out.lock().unwrap_or_else(PoisonError::into_inner) -= 1;
        self.lent.returned.notify_all();
    }
}

impl Flat {
    /// `count` zeros.
    pub fn zeros(count: usize) -> Result<Self, TorchError> {
        let count = i64::try_from(count).map_err(|_| TorchError::NotPlain("it would be too large".into()))?;
        Ok(Self { values: Tensor::f_zeros([count], (Kind::Float, Device::Cpu))?, lent: Arc::default() })
    }

    /// The values of a tensor of its own, which nothing else refers to: contiguous float32 on the processor.
    pub fn of(values: Tensor) -> Result<Self, TorchError> {
        plain(&values, Kind::Float)?;
        Ok(Self { values, lent: Arc::default() })
    }

    /// Lends the row to another thread. Until that is over, [`Self::values_mut`] waits.
    ///
    /// The loan does not cover the views: do not let libtorch write to one before the next call of [`Self::values_mut`].
    pub fn lend(&self) -> Lent {
        *self.lent.out.lock().unwrap_or_else(PoisonError::into_inner) += 1;
        Lent { values: self.values.shallow_clone(), lent: Arc::clone(&self.lent) }
    }

    /// A tensor of `shape` over the values from `offset` on; it knows nothing of other views.
    pub fn view(&self, offset: usize, shape: &[i64]) -> Result<Tensor, TorchError> {
        let count: i64 = shape.iter().product();
        let offset = i64::try_from(offset).map_err(|_| TorchError::NotPlain("no such offset".into()))?;
        Ok(self.values.f_narrow(0, offset, count)?.f_view(shape)?.f_detach()?)
    }

    /// All values.
    ///
    /// The borrow does not cover the views: do not let libtorch write to one while the slice is held.
    pub fn values(&self) -> &[f32] {
        // SAFETY: it is a contiguous float32 tensor on the processor, by `zeros` or `of`, and never resized.
        unsafe { slice::from_raw_parts(self.values.data_ptr().cast::<f32>(), self.values.numel()) }
    }

    /// All values, to change them; waits for the end of every loan. The borrow does not cover the views, as for
    /// [`Self::values`].
    pub fn values_mut(&mut self) -> &mut [f32] {
        let mut out = self.lent.out.lock().unwrap_or_else(PoisonError::into_inner);
        while *out > 0 {
            out = self.lent.returned.wait(out).unwrap_or_else(PoisonError::into_inner);
        }
        drop(out);
        // SAFETY: as in `values`; no loan is out, and `&mut self` keeps new ones and other slices of this row away.
        unsafe { slice::from_raw_parts_mut(self.values.data_ptr().cast::<f32>(), self.values.numel()) }
    }
}

/// The gradient that backward passes have added up in `parameter`, a leaf that requires one; none if they did not reach it.
/// The next of them begins anew, and nothing else refers to what is given.
pub fn take_gradient(parameter: &mut Tensor) -> Result<Option<Tensor>, TorchError> {
    let mut gradient = Tensor::new();
    let (from, to) = (parameter.as_mut_ptr(), gradient.as_mut_ptr());
    // SAFETY: both handles live across the call, which moves what the first refers to into the second.
    call(|message, capacity| unsafe { xt_take_gradient(from, to, message, capacity) })?;
    Ok(Some(gradient).filter(Tensor::defined))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_seen_where_they_lie_and_odd_tensors_are_refused() {
        let tensor = Tensor::from_slice(&[1.0f32, f32::NAN, -3.0]);
        let seen = floats(&tensor).unwrap();
        assert_eq!(seen.as_ptr().cast::<u8>(), tensor.data_ptr().cast::<u8>().cast_const());
        assert_eq!((seen[0], seen[1].to_bits(), seen[2]), (1.0, f32::NAN.to_bits(), -3.0));
        assert_eq!(&bytes(seen)[..4], 1.0f32.to_le_bytes());
        let square = Tensor::zeros([2, 3], (Kind::Float, Device::Cpu));
        for odd in [square.transpose(0, 1), Tensor::from_slice(&[1i64]), Tensor::new()] {
            assert!(matches!(floats(&odd), Err(TorchError::NotPlain(_))));
        }
        assert!(floats(&Tensor::zeros([0], (Kind::Float, Device::Cpu))).unwrap().is_empty());
    }

    #[test]
    fn gradients_are_added_up_until_they_are_taken() {
        let values = Flat::zeros(32).unwrap();
        let mut parameter = values.view(16, &[2, 2]).unwrap().set_requires_grad(true);
        for _ in 0..2 {
            (&parameter * 3.0).sum(Kind::Float).backward();
        }
        let taken = take_gradient(&mut parameter).unwrap().unwrap();
        assert_eq!(Flat::of(taken).unwrap().values(), [6.0; 4]);
        assert!(take_gradient(&mut parameter).unwrap().is_none());
        let error = take_gradient(&mut values.view(0, &[4]).unwrap()).unwrap_err();
        assert!(error.to_string().contains("no leaf that requires a gradient"), "{error}");
    }

    /// What one backward pass gives to two parameters, or a value that is spread over a whole one, must be memory of its own:
    /// it is changed in place.
    #[test]
    fn no_two_gradients_share_memory() {
        let rows = [1.0f32, 2.0].map(|value| Tensor::from_slice(&[value; 64]));
        let mut leaves = rows.map(|row| row.set_requires_grad(true));
        (&leaves[0] + &leaves[1]).sum(Kind::Float).backward();
        let mut taken = leaves.each_mut().map(|leaf| Flat::of(take_gradient(leaf).unwrap().unwrap()).unwrap());
        taken[0].values_mut()[3] = 7.0;
        assert_eq!(taken[1].values(), [1.0; 64]);
        assert_eq!((taken[0].values()[2], taken[0].values()[3]), (1.0, 7.0));
    }

    #[test]
    fn whoever_changes_a_lent_row_waits_until_it_is_given_back() {
        let mut row = Flat::zeros(8).unwrap();
        let (lent, other) = (row.lend(), row.lend());
        let (tell, told) = std::sync::mpsc::channel();
        let reader = std::thread::spawn(move || {
            drop(other);
            told.recv().unwrap();
            lent.values().to_vec()
        });
        let changer = std::thread::spawn(move || row.values_mut().fill(1.0));
        assert!(!changer.is_finished(), "one loan is still out");
        tell.send(()).unwrap();
        assert_eq!(reader.join().unwrap(), [0.0; 8]);
        changer.join().unwrap();
    }

    #[test]
    fn rows_start_at_the_alignment_that_tensors_have() {
        let row = Flat::zeros(5).unwrap();
        assert_eq!(row.values().as_ptr() as usize % (ALIGNMENT * size_of::<f32>()), 0);
    }
}
