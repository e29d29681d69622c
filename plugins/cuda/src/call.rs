//! How a node becomes launches: their arguments, and scratch memory for intermediate results.

use crate::buffer::Place;
use crate::cublas_product::Product;
use crate::driver::cu;
use crate::gpu::Gpu;
use crate::layout::kernel_type;
use crate::modules::{Function, Modules};
use crate::ops::Kept;
use crate::sys::*;
use llmrt_plugin::{DType, Error, Piece, Result, Scratch, TensorView};

/// Work with all it needs, to be launched once or often.
pub enum Launch {
    /// A kernel.
    Kernel(KernelLaunch),
    /// The vendor's product.
    Product(Box<VendorProduct>),
}

/// A kernel over a grid.
pub struct KernelLaunch {
    function: Function,
    grid: [u32; 3],
    block: u32,
    /// Bytes of shared memory beside what the kernel declares.
    shared: u32,
    args: Vec<u8>,
}

/// A product by cuBLASLt with the kernels that follow it, and the fallback kernel that does all of it.
pub struct VendorProduct {
    product: Product,
    then: Vec<Launch>,
    own: Launch,
}

/// Blocks per dim that a launch may have, of y and z.
const MAX_GRID: usize = 65535;

/// A kernel's family and name, threads of its blocks, and bytes of shared memory that they have beside what it declares.
pub struct Kernel<'a> {
    /// The file.
    pub family: &'a str,
    /// In it.
    pub name: &'a str,
    /// Whole warps.
    pub block: usize,
    /// The same at every launch.
    pub shared: usize,
}

impl Launch {
    /// Of `grid` blocks; `None` where a dim is 0.
    pub fn new(
        gpu: &Gpu,
        modules: &Modules,
        kernel: &Kernel<'_>,
        grid: [usize; 3],
        args: Args,
    ) -> Result<Option<Launch>> {
        if grid.contains(&0) {
            return Ok(None);
        }
        if grid[0] > i32::MAX as usize || grid[1] > MAX_GRID || grid[2] > MAX_GRID {
            return Err(Error::unsupported(format!("`{}` over {grid:?} blocks", kernel.name)));
        }
        let (block, shared) = (kernel.block as u32, kernel.shared as u32);
        let function = modules.function(gpu, kernel.family, kernel.name, shared)?;
        let (grid, args) = (grid.map(|n| n as u32), args.finish());
        if let Some(size) = function.param_bytes.filter(|size| *size != args.len()) {
            let (name, n) = (kernel.name, args.len());
            return Err(Error::internal(format!("`{name}` takes {size} bytes of arguments, not {n}")));
        }
        Ok(Some(Launch::Kernel(KernelLaunch { function, grid, block, shared, args })))
    }

    /// Enqueues it.
    pub(crate) fn enqueue(&self, gpu: &Gpu, stream: CUstream) -> Result<()> {
        match self {
            Launch::Kernel(kernel) => kernel.enqueue(gpu, stream),
            Launch::Product(work) => work.enqueue(gpu, stream),
        }
    }
}

impl VendorProduct {
    fn enqueue(&self, gpu: &Gpu, stream: CUstream) -> Result<()> {
        if gpu.cublas.is_there() {
            match self.product.enqueue(stream) {
                Ok(()) => return self.then.iter().try_for_each(|launch| launch.enqueue(gpu, stream)),
                Err(reason) => gpu.cublas.give_up(&reason),
            }
        }
        self.own.enqueue(gpu, stream)
    }
}

impl KernelLaunch {
    fn enqueue(&self, gpu: &Gpu, stream: CUstream) -> Result<()> {
        let [x, y, z] = self.grid;
        let (mut params, none) = ([self.args.as_ptr().cast_mut().cast()], std::ptr::null_mut());
        let params = params.as_mut_ptr();
        // SAFETY: a live kernel and a live stream of the entered device; the one argument has the bytes that the kernel's has, and
        // is copied during the call. It names memory that the host keeps, and checked, until the work is done.
        unsafe {
            cu!(
                gpu.driver,
                cuLaunchKernel(
                    self.function.raw,
                    x,
                    y,
                    z,
                    self.block,
                    1,
                    1,
                    self.shared,
                    stream,
                    params,
                    none
                )
            )
        }
    }
}

/// A kernel's one argument, a struct of C, field by field: each starts at a multiple of its size.
#[derive(Default)]
pub struct Args {
    bytes: Vec<u8>,
    has_maps: bool,
}

impl Args {
    fn put(mut self, bytes: &[u8]) -> Args {
        self.bytes.resize(self.bytes.len().next_multiple_of(bytes.len()), 0);
        self.bytes.extend_from_slice(bytes);
        self
    }

    /// The bytes, as many as the struct has.
    fn finish(mut self) -> Vec<u8> {
        let align = if self.has_maps { align_of::<CUtensorMap>() } else { 8 };
        self.bytes.resize(self.bytes.len().next_multiple_of(align), 0);
        self.bytes
    }

    /// A tensor map, in structs that begin with maps.
    pub fn map(mut self, map: &CUtensorMap) -> Args {
        self.has_maps = true;
        map.opaque.iter().fold(self, |args, word| args.address(*word))
    }

    /// All of `other`, which begins at a multiple of 8.
    pub fn then(mut self, other: Args) -> Args {
        self.bytes.resize(self.bytes.len().next_multiple_of(8), 0);
        self.bytes.extend_from_slice(&other.bytes);
        self
    }

    /// An address on the device.
    pub fn address(self, address: u64) -> Args {
        self.put(&address.to_ne_bytes())
    }

    /// A count or index of 64 bits.
    pub fn count(self, n: usize) -> Args {
        self.put(&(n as i64).to_ne_bytes())
    }

    /// A number of 32 bits.
    pub fn int(self, n: u32) -> Args {
        self.put(&n.to_ne_bytes())
    }

    /// A float.
    pub fn float(self, x: f32) -> Args {
        self.put(&x.to_ne_bytes())
    }

    /// `struct Tensor` of device.cuh: address, ne, nb, dtype and layout.
    pub fn tensor(self, t: &TensorView<'_>) -> Result<Args> {
        let address = if t.n_elements() == 0 { 0 } else { address(t)? };
        Ok(self.fields(address, t.ne(), t.nb(), kernel_type(t)))
    }

    /// As above, field by field.
    pub fn fields(self, address: u64, ne: [usize; 4], nb: [usize; 4], dtype: u32) -> Args {
        ne.into_iter().chain(nb).fold(self.address(address), Args::count).count(dtype as usize)
    }

    /// As above: numbers without gaps in scratch memory.
    pub fn dense(self, address: u64, ne: [usize; 4], dtype: DType) -> Args {
        self.fields(address, ne, dense_strides(ne, dtype), dtype.id())
    }

    /// As above, of F32.
    pub fn floats(self, address: u64, ne: [usize; 4]) -> Args {
        self.dense(address, ne, DType::F32)
    }

    /// As above, or a tensor at address 0.
    pub fn optional(self, t: Option<TensorView<'_>>) -> Result<Args> {
        match t {
            Some(t) => self.tensor(&t),
            None => Ok((0..9).fold(self.address(0), |args, _| args.count(0))),
        }
    }
}

/// Bytes per dim of a tensor without gaps, of a dtype without blocks.
pub fn dense_strides(ne: [usize; 4], dtype: DType) -> [usize; 4] {
    let size = dtype.block_bytes();
    [size, size * ne[0], size * ne[0] * ne[1], size * ne[0] * ne[1] * ne[2]]
}

/// Where a tensor is, for the device.
pub fn address(t: &TensorView<'_>) -> Result<u64> {
    let place = Place::of(t)?;
    match place.gpu {
        Some(_) => Ok(place.address),
        None => Err(Error::invalid(format!("`{}` is in memory of the host", t.name()))),
    }
}

/// What a node needs to become launches.
pub struct Call<'a> {
    /// The device.
    pub gpu: &'a Gpu,
    pub(crate) modules: &'a Modules,
    pub(crate) scratch: Option<&'a mut Scratch>,
    pub(crate) pieces: Vec<Piece>,
    /// What earlier nodes left for later ones, and whether this one has to do with it.
    pub(crate) kept: &'a mut Option<Kept>,
    pub(crate) uses_kept: bool,
    /// Whether neighbouring nodes may become one launch.
    pub(crate) fuses: bool,
    /// What came of it.
    pub(crate) launches: &'a mut Vec<Launch>,
}

impl Call<'_> {
    /// Appends a launch of `grid` blocks of `block` threads. Nothing where a dim is 0.
    pub fn launch(
        &mut self,
        (family, name): (&str, &str),
        grid: [usize; 3],
        block: usize,
        args: Args,
    ) -> Result<()> {
        self.launch_kernel(&Kernel { family, name, block, shared: 0 }, grid, args)
    }

    /// As above.
    pub fn launch_kernel(&mut self, kernel: &Kernel<'_>, grid: [usize; 3], args: Args) -> Result<()> {
        self.launches.extend(Launch::new(self.gpu, self.modules, kernel, grid, args)?);
        Ok(())
    }

    /// Puts a product with the launches after number `i` in the place of that one, which is its fallback.
    pub(crate) fn replace(&mut self, i: usize, product: Product) {
        let mut last = self.launches.drain(i..);
        if let Some(own) = last.next() {
            let then = last.collect();
            self.launches.push(Launch::Product(Box::new(VendorProduct { product, then, own })));
        }
    }

    /// Memory until the node's last launch; what is freed then may be handed out to later launches, which run after it.
    pub fn scratch(&mut self, bytes: usize) -> Result<u64> {
        if !self.uses_kept {
            self.forget();
        }
        let piece = self.piece(bytes)?;
        self.pieces.push(piece);
        Ok(piece.addr)
    }

    /// Gives back what the launches of this node alone use. In the reverse order, as in a stack.
    pub(crate) fn give_back(&mut self) {
        for piece in self.pieces.drain(..).rev() {
            if let Some(scratch) = self.scratch.as_mut() {
                scratch.free(piece);
            }
        }
    }

    /// Memory until it is given back.
    pub(crate) fn piece(&mut self, bytes: usize) -> Result<Piece> {
        let scratch =
            self.scratch.as_mut().ok_or_else(|| Error::internal("the host gave no scratch memory"))?;
        scratch.alloc(bytes.max(1) as u64, 256)
    }
}

impl Drop for Call<'_> {
    fn drop(&mut self) {
        self.give_back();
    }
}
