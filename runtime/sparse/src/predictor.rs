//! Predictors of active neurons: scores = fc2 · relu(fc1 · x).

use crate::Error;
use crate::pt::{Pt, Tensor};

/// One layer's predictor, as views of the bytes of a `model_<layer>.pt`.
#[derive(Clone, PartialEq, Debug)]
pub struct Predictor {
    /// [r, n_embd], outermost first.
    pub fc1: Tensor,
    /// [n_ff, r].
    pub fc2: Tensor,
}

impl Predictor {
    /// The tensors `fc1.weight` and `fc2.weight` of a dict.
    pub fn from_pt(file: &[u8]) -> Result<Predictor, Error> {
        let pt = Pt::parse(file)?;
        let (fc1, fc2) = (pt.get("fc1.weight")?.clone(), pt.get("fc2.weight")?.clone());
        let (&[r, _], &[_, inner]) = (fc1.sizes.as_slice(), fc2.sizes.as_slice()) else {
            let found =
                if fc1.sizes.len() == 2 { ("fc2.weight", fc2.sizes) } else { ("fc1.weight", fc1.sizes) };
            let expected = "a matrix".into();
            return Err(Error::WrongPredictor { tensor: found.0, found: found.1, expected });
        };
        if r != inner || r == 0 {
            let expected = format!("[n_ff, {r}] as `fc1.weight` has {r} rows");
            return Err(Error::WrongPredictor { tensor: "fc2.weight", found: fc2.sizes, expected });
        }
        Ok(Predictor { fc1, fc2 })
    }

    /// How many numbers are between the two matrices.
    pub fn rank(&self) -> u64 {
        self.fc1.sizes[0]
    }

    /// Refuses the predictor of a model with other dimensions.
    pub fn check(&self, n_embd: u64, n_ff: u64) -> Result<(), Error> {
        let r = self.rank();
        let expected = [("fc1.weight", &self.fc1, [r, n_embd]), ("fc2.weight", &self.fc2, [n_ff, r])];
        let wrong = expected.into_iter().find(|(_, tensor, sizes)| tensor.sizes != sizes);
        match wrong {
            None => Ok(()),
            Some((tensor, found, sizes)) => {
                let (found, expected) = (found.sizes.clone(), format!("{sizes:?} for this model"));
                Err(Error::WrongPredictor { tensor, found, expected })
            }
        }
    }
}
