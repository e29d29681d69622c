//! The driver's functions: each takes the world, does its part, and answers with a number.

pub mod cublas;
mod device;
mod graph;
pub mod maps;
mod memory;
mod module;
mod work;

/// Defines functions of the library: `name(arguments) |world| body`, the body an [`crate::world::Answer`].
macro_rules! api {
    ($($name:ident($($arg:ident: $ty:ty),* $(,)?) |$world:ident| $body:expr;)*) => { $(
        /// As the driver's.
        ///
        /// # Safety
        /// As the driver's documentation specifies.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn $name($($arg: $ty),*) -> crate::sys::CUresult {
            let mut guard = crate::world::world();
            let $world = &mut *guard;
            $world.count(stringify!($name), 1);
            #[allow(unused_mut)]
            let mut body = move || -> crate::world::Answer { $body };
            match body() {
                Ok(()) => crate::sys::CUDA_SUCCESS,
                Err(code) => code,
            }
        }
    )* };
}
use api;

/// Writes an output, which must not be NULL.
fn give<T>(to: *mut T, value: T) -> crate::world::Answer {
    if to.is_null() {
        return Err(crate::sys::CUDA_ERROR_INVALID_VALUE);
    }
    // SAFETY: the caller's output.
    unsafe { to.write(value) };
    Ok(())
}
