//! Files of torch: read or refused; tensors are no larger than the file.

use crate::{Target, accepted, samples};
use llmrt_sparse::pt::{Pt, Tensor};
use llmrt_sparse::{Counts, Predictor};

/// Files of `torch.save`.
pub const TARGET: Target = Target { name: "torch", check, seeds };

/// Reads a file and every tensor of it.
pub fn check(data: &[u8]) {
    if let Some(pt) = accepted(Pt::parse(data)) {
        match &pt {
            Pt::Tensor(tensor) => reads(tensor, data),
            Pt::Dict(tensors) => tensors.iter().take(16).for_each(|(_, tensor)| reads(tensor, data)),
        }
    }
    accepted(Counts::from_pt(data));
    accepted(Predictor::from_pt(data));
}

fn reads(tensor: &Tensor, data: &[u8]) {
    let n = tensor.n_elements();
    assert!(n <= data.len(), "more elements than bytes");
    assert_eq!(tensor.to_f64s(data).len(), n);
    assert_eq!(tensor.bytes(data).len(), n * tensor.number.bytes());
}

fn seeds() -> Vec<Vec<u8>> {
    vec![samples::torch_tensor(), samples::torch_dict()]
}
