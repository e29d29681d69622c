//! Single operators on operands: the words that compositions are written in.
//!
//! Dims are inner first, and operands broadcast where a dim is 1. Results that are compared with, or that index, are
//! F32 numbers without a fraction, which are exact up to 2²⁴: a comparison is then a difference within 0 and 1.

use crate::call::{Call, run};
use crate::operand::Operand;
use crate::sys::*;
use llmrt_plugin::Result;

/// Whole numbers up to this are exact in F32.
pub const EXACT: usize = 1 << 24;

/// `fn name(x, y)`: y = f(x).
macro_rules! of_one {
    ($($(#[doc = $doc:literal])* $name:ident = $library:ident.$op:ident;)*) => {
        $($(#[doc = $doc])*
        pub fn $name(&mut self, x: &Operand, y: &Operand) -> Result<()> {
            let (x, y) = (self.tensor(x)?, self.tensor(y)?);
            run!(self, $library.$op(x, y))
        })*
    };
}

impl Call<'_> {
    of_one! {
        /// y = |x|
        abs = math.aclnnAbs;
        /// y = eˣ
        exp = math.aclnnExp;
        /// y = cos x
        cos = math.aclnnCos;
        /// y = sin x
        sin = math.aclnnSin;
        /// y = tanh x
        tanh = math.aclnnTanh;
        /// y = 1 / √x
        rsqrt = math.aclnnRsqrt;
        /// y = ln x
        log = math.aclnnLog;
        /// y = -1, 0 or 1
        sign = math.aclnnSign;
        /// The largest integers not above x.
        floor = math.aclnnFloor;
    }

    /// y = a + b
    pub fn add(&mut self, a: &Operand, b: &Operand, y: &Operand) -> Result<()> {
        let (a, b, y, one) = (self.tensor(a)?, self.tensor(b)?, self.tensor(y)?, self.float(1.0)?);
        run!(self, math.aclnnAdd(a, b, one, y))
    }

    /// y = a - b
    pub fn sub(&mut self, a: &Operand, b: &Operand, y: &Operand) -> Result<()> {
        let (a, b, y, one) = (self.tensor(a)?, self.tensor(b)?, self.tensor(y)?, self.float(1.0)?);
        run!(self, math.aclnnSub(a, b, one, y))
    }

    /// y = a · b
    pub fn mul(&mut self, a: &Operand, b: &Operand, y: &Operand) -> Result<()> {
        let (a, b, y) = (self.tensor(a)?, self.tensor(b)?, self.tensor(y)?);
        run!(self, math.aclnnMul(a, b, y))
    }

    /// y = a / b
    pub fn div(&mut self, a: &Operand, b: &Operand, y: &Operand) -> Result<()> {
        let (a, b, y) = (self.tensor(a)?, self.tensor(b)?, self.tensor(y)?);
        run!(self, math.aclnnDiv(a, b, y))
    }

    /// y = a ^ b
    pub fn pow(&mut self, a: &Operand, b: &Operand, y: &Operand) -> Result<()> {
        let (a, b, y) = (self.tensor(a)?, self.tensor(b)?, self.tensor(y)?);
        run!(self, math.aclnnPowTensorTensor(a, b, y))
    }

    /// y = x · factor
    pub fn scale(&mut self, x: &Operand, factor: f32, y: &Operand) -> Result<()> {
        let (x, y, factor) = (self.tensor(x)?, self.tensor(y)?, self.float(factor)?);
        run!(self, math.aclnnMuls(x, factor, y))
    }

    /// y = x + number
    pub fn shift(&mut self, x: &Operand, number: f32, y: &Operand) -> Result<()> {
        let (x, y, number, one) = (self.tensor(x)?, self.tensor(y)?, self.float(number)?, self.float(1.0)?);
        run!(self, math.aclnnAdds(x, number, one, y))
    }

    /// y = x · factor + number, in place of what y was.
    pub fn affine(&mut self, x: &Operand, factor: f32, number: f32, y: &Operand) -> Result<()> {
        self.scale(x, factor, y)?;
        self.shift(y, number, y)
    }

    /// y = x within min and max.
    pub fn clamp(&mut self, x: &Operand, min: f32, max: f32, y: &Operand) -> Result<()> {
        let (x, y, min, max) = (self.tensor(x)?, self.tensor(y)?, self.float(min)?, self.float(max)?);
        run!(self, math.aclnnClamp(x, min, max, y))
    }

    /// y = x, but at least min.
    pub fn at_least(&mut self, x: &Operand, min: f32, y: &Operand) -> Result<()> {
        let (x, y, min) = (self.tensor(x)?, self.tensor(y)?, self.float(min)?);
        run!(self, math.aclnnClampMin(x, min, y))
    }

    /// y = base ^ exponent
    pub fn power_of(&mut self, base: f32, exponent: &Operand, y: &Operand) -> Result<()> {
        let (base, exponent, y) = (self.float(base)?, self.tensor(exponent)?, self.tensor(y)?);
        run!(self, math.aclnnPowScalarTensor(base, exponent, y))
    }

    /// y = value everywhere.
    pub fn fill(&mut self, y: &Operand, value: f32) -> Result<()> {
        let (y, value) = (self.tensor(y)?, self.float(value)?);
        run!(self, math.aclnnInplaceFillScalar(y, value))
    }

    /// y [n] = start, start + step, …; the library counts in double precision, so the end is between two numbers.
    pub fn count(&mut self, start: f32, step: f32, y: &Operand) -> Result<()> {
        let end = f64::from(start) + (y.n_elements() as f64 - 0.5) * f64::from(step);
        let (start, step) = (self.double(start.into())?, self.double(step.into())?);
        let (end, y) = (self.double(end)?, self.tensor(y)?);
        run!(self, math.aclnnArange(start, end, step, y))
    }

    /// y = Σ x over a dim, which stays with one element.
    pub fn sum(&mut self, x: &Operand, dim: usize, y: &Operand) -> Result<()> {
        let dims = self.ints(&[outer(x, dim)])?;
        let dtype = y.dtype;
        let (x, y) = (self.tensor(x)?, self.tensor(y)?);
        run!(self, math.aclnnReduceSum(x, dims, true, dtype, y))
    }

    /// y = place of the largest element of a dim, which stays with one element; y is I32 or I64.
    pub fn arg_max(&mut self, x: &Operand, dim: usize, y: &Operand) -> Result<()> {
        let dim = outer(x, dim);
        let (x, y) = (self.tensor(x)?, self.tensor(y)?);
        run!(self, math.aclnnArgMax(x, dim, true, y))
    }

    /// y = softmax over dim 0.
    pub fn soft_max(&mut self, x: &Operand, y: &Operand) -> Result<()> {
        let (x, y) = (self.tensor(x)?, self.tensor(y)?);
        run!(self, nn.aclnnSoftmax(x, -1, y))
    }

    /// y = what `index` (I32 or I64, in range) picks of a dim of x.
    pub fn gather(&mut self, x: &Operand, dim: usize, index: &Operand, y: &Operand) -> Result<()> {
        let dim = outer(x, dim);
        let (x, index, y) = (self.tensor(x)?, self.tensor(index)?, self.tensor(y)?);
        run!(self, nn.aclnnGatherV2(x, dim, index, y))
    }

    /// What `index` picks of a dim of x.
    pub fn picked(&mut self, x: &Operand, dim: usize, index: &Operand) -> Result<Operand> {
        let mut ne = x.ne.clone();
        ne[dim] = index.ne[0];
        let y = self.temporary(x.dtype, &ne)?;
        self.gather(x, dim, index, &y)?;
        Ok(y)
    }

    /// A copy of x without gaps in another dtype.
    pub fn cast(&mut self, x: &Operand, dtype: aclDataType) -> Result<Operand> {
        let y = self.temporary(dtype, &x.ne)?;
        self.convert(x, &y)?;
        Ok(y)
    }

    /// y = x in y's dtype.
    pub fn convert(&mut self, x: &Operand, y: &Operand) -> Result<()> {
        let dtype = y.dtype;
        let (x, y) = (self.tensor(x)?, self.tensor(y)?);
        run!(self, math.aclnnCast(x, dtype, y))
    }

    /// x itself if it has this dtype, or else a copy that has.
    pub fn to(&mut self, x: &Operand, dtype: aclDataType) -> Result<Operand> {
        if x.dtype == dtype { Ok(x.clone()) } else { self.cast(x, dtype) }
    }

    /// As [`Call::to`], without gaps.
    pub fn dense(&mut self, x: &Operand, dtype: aclDataType) -> Result<Operand> {
        match x.dtype == dtype {
            true if x.is_contiguous() => Ok(x.clone()),
            true => {
                let y = self.temporary(dtype, &x.ne)?;
                self.copy(x, &y)?;
                Ok(y)
            }
            false => self.cast(x, dtype),
        }
    }

    /// y = x, converted; x broadcasts.
    pub fn copy(&mut self, x: &Operand, y: &Operand) -> Result<()> {
        let (x, y) = (self.tensor(x)?, self.tensor(y)?);
        run!(self, math.aclnnInplaceCopy(y, x))
    }

    /// Where a result of this dtype without gaps is computed: y itself if it is so.
    pub fn place(&mut self, y: &Operand, dtype: aclDataType) -> Result<Operand> {
        let fits = y.dtype == dtype && y.is_contiguous();
        if fits { Ok(y.clone()) } else { self.temporary(dtype, &y.ne) }
    }

    /// Brings what [`Call::place`] gave to y.
    pub fn store(&mut self, placed: &Operand, y: &Operand) -> Result<()> {
        if placed == y { Ok(()) } else { self.copy(placed, y) }
    }
}

/// The library counts dims from the outermost.
fn outer(t: &Operand, dim: usize) -> i64 {
    (t.ne.len() - 1 - dim) as i64
}

/// That the library has the operators: `has!(cann, math.aclnnAdd, nn.aclnnSoftmax)?`.
macro_rules! has {
    ($cann:expr, $($library:ident.$name:ident),* $(,)?) => {
        $crate::ops::check::ensure(
            true $(&& $cann.$library.$name.plan.is_some() && $cann.$library.$name.launch.is_some())*,
            llmrt_plugin::Reason::Op,
        )
    };
}
pub(crate) use has;
