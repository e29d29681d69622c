//! The ELF reader on a small file made here, whole and with every byte of it changed or cut off.

use llmrt_host::plugin::elf::Elf;
use llmrt_host::plugin::manifest::Manifest;

const MANIFEST: &str = "abi=0\nname=x\nversion=1.2\n\0";
const NAMES: &str = "\0.names\0.llmrtmf\0.dynsym\0.dynstr\0.note.gnu.build-id\0";
const SYMBOL_NAMES: &str = "\0llmrt_other\0llmrt_own\0malloc\0";

/// A shared object for this machine with a manifest, a build id, and three symbols of which two are undefined.
fn small_file() -> Vec<u8> {
    let symbol = |name: &str, section: u16| {
        let at = SYMBOL_NAMES.find(name).unwrap() as u32;
        [&at.to_ne_bytes()[..], &[0x12, 0], &section.to_ne_bytes(), &[0; 16]].concat()
    };
    let symbols =
        [vec![0; 24], symbol("llmrt_other", 0), symbol("llmrt_own", 2), symbol("malloc", 0)].concat();
    file_with(&symbols, SYMBOL_NAMES.as_bytes())
}

/// The same with other symbols and names of symbols.
fn file_with(symbols: &[u8], symbol_names: &[u8]) -> Vec<u8> {
    // The test program's own header has this machine's number.
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    let mut file = own[..64].to_vec();
    file[16..18].copy_from_slice(&3u16.to_ne_bytes());

    let words = |w: &[u32]| w.iter().flat_map(|w| w.to_ne_bytes()).collect::<Vec<u8>>();
    let note = [words(&[4, 3, 3]), b"GNU\0\xaa\xbb\xcc".to_vec()].concat();

    let contents: [(&str, u32, &[u8], u32); 5] = [
        (".names", 3, NAMES.as_bytes(), 0),
        (".llmrtmf", 1, MANIFEST.as_bytes(), 0),
        (".dynsym", 11, symbols, 4),
        (".dynstr", 3, symbol_names, 0),
        (".note.gnu.build-id", 7, &note, 0),
    ];
    let mut headers = vec![0; 64];
    for (name, kind, bytes, link) in contents {
        let name = NAMES.find(&format!("\0{name}\0")).unwrap() as u32 + 1;
        headers.extend(words(&[name, kind, 0, 0, 0, 0]));
        headers.extend([file.len() as u64, bytes.len() as u64].iter().flat_map(|w| w.to_ne_bytes()));
        headers.extend(words(&[link, 0, 0, 0, 0, 0]));
        file.extend(bytes);
    }
    let start = file.len() as u64;
    file[40..48].copy_from_slice(&start.to_ne_bytes());
    for (at, value) in [(58, 64u16), (60, 6), (62, 1)] {
        file[at..at + 2].copy_from_slice(&value.to_ne_bytes());
    }
    file.extend(headers);
    file
}

/// The manifest, undefined symbols, and the build id.
type Parts = (Manifest, Vec<Option<String>>, Vec<u8>);

/// Reads everything the checklist reads. Of the symbols those that are undefined, by prefix, and one that is defined.
fn read_all(bytes: &[u8]) -> Result<Parts, String> {
    let elf = Elf::parse(bytes)?;
    let symbols = ["llmrt_", "mal", "no_such"].map(|prefix| elf.undefined_symbol(prefix));
    let defines = ["llmrt_own", "no_such"].map(|name| elf.defines(name));
    let id = elf.build_id().unwrap_or_default().to_vec();
    let symbols = symbols.into_iter().collect::<Result<Vec<_>, String>>();
    let manifest = Manifest::read(&elf)?;
    defines.into_iter().collect::<Result<Vec<_>, String>>()?;
    Ok((manifest, symbols?, id))
}

/// Bytes that this thread allocates while `body` runs: the largest of its requests, and their sum.
fn allocated<T>(body: impl FnOnce() -> T) -> (T, usize) {
    let before = ALLOCATED.with(std::cell::Cell::get);
    let result = body();
    (result, ALLOCATED.with(std::cell::Cell::get) - before)
}

/// Counts the bytes that each thread allocates.
struct Counting;

thread_local! {
    static ALLOCATED: std::cell::Cell<usize> = const { std::cell::Cell::new(0) };
}

// SAFETY: passes every call on to the system's allocator.
unsafe impl std::alloc::GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: std::alloc::Layout) -> *mut u8 {
        let _ = ALLOCATED.try_with(|n| n.set(n.get() + layout.size()));
        // SAFETY: the caller's promise.
        unsafe { std::alloc::System.alloc(layout) }
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: std::alloc::Layout) {
        // SAFETY: the caller's promise.
        unsafe { std::alloc::System.dealloc(ptr, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

#[test]
fn a_whole_file_gives_manifest_symbols_and_build_id() {
    let file = small_file();
    let (manifest, symbols, id) = read_all(&file).unwrap();
    assert_eq!((manifest.name.as_str(), manifest.version.as_str()), ("x", "1.2"));
    assert_eq!(symbols, [Some("llmrt_other".into()), Some("malloc".into()), None]);
    assert_eq!(id, [0xaa, 0xbb, 0xcc]);
    let elf = Elf::parse(&file).unwrap();
    let defines = ["llmrt_own", "llmrt_other", "llmrt_ow", "malloc"].map(|name| elf.defines(name).unwrap());
    assert_eq!(defines, [true, false, false, false]);
}

#[test]
fn a_file_cut_off_anywhere_is_refused() {
    let file = small_file();
    for n in 0..file.len() {
        assert!(read_all(&file[..n]).is_err(), "cut at {n} of {}", file.len());
    }
}

#[test]
fn no_change_of_a_byte_does_harm() {
    let mut file = small_file();
    for at in 0..file.len() {
        let original = file[at];
        for value in [0, 1, 0x7f, 0x80, 0xff, original ^ 1, original.wrapping_add(1)] {
            file[at] = value;
            let _ = read_all(&file);
        }
        file[at] = original;
    }
}

#[test]
fn no_change_of_a_number_does_harm() {
    let mut file = small_file();
    let values = [u64::MAX, u64::MAX - 7, 1 << 63, 1 << 32, u64::from(u32::MAX), file.len() as u64, 0];
    for at in 0..file.len() - 8 {
        let original = file[at..at + 8].to_vec();
        for value in values {
            file[at..at + 8].copy_from_slice(&value.to_ne_bytes());
            let _ = read_all(&file);
        }
        file[at..at + 8].copy_from_slice(&original);
    }
}

#[test]
fn another_machine_is_named() {
    let mut file = small_file();
    file[18..20].copy_from_slice(&0xfffeu16.to_ne_bytes());
    assert!(read_all(&file).unwrap_err().contains("built for ELF machine 65534"));
}

#[test]
fn a_million_symbols_with_one_long_name_cost_no_memory() {
    let n = 1 << 20;
    let names = [&[0][..], &vec![b'a'; 8 << 20], &[0]].concat();
    let mut symbol = [0; 24];
    symbol[0] = 1;
    let file = file_with(&symbol.repeat(n), &names);
    let elf = Elf::parse(&file).unwrap();
    let (found, bytes) = allocated(|| (elf.undefined_symbol("llmrt_"), elf.defines("llmrt_plugin_query_v0")));
    assert_eq!(found, (Ok(None), Ok(false)));
    assert!(bytes < 4096, "{bytes} bytes");
    // Of a long name that is found the beginning is shown.
    let (found, bytes) = allocated(|| elf.undefined_symbol("aaa"));
    assert!(found.unwrap().unwrap().len() == 128 && bytes < 4096, "{bytes} bytes");

    let file = file_with(&symbol.repeat(n + 1), &names);
    let e = Elf::parse(&file).unwrap().undefined_symbol("llmrt_").unwrap_err();
    assert!(e.contains("more than 1048576 dynamic symbols"), "{e}");
}

#[test]
fn sections_with_one_long_name_cost_little_time() {
    let mut file = file_with(&[], &[0]);
    let start = file.len();
    // 4 096 section headers whose names all begin at the start of one text of 8 MB.
    let names_at = (start + 4096 * 64) as u64;
    for _ in 0..4096 {
        let mut header = [0; 64];
        header[24..32].copy_from_slice(&names_at.to_ne_bytes());
        header[32..40].copy_from_slice(&(8u64 << 20).to_ne_bytes());
        file.extend(header);
    }
    file.extend(vec![b'a'; (8 << 20) - 1]);
    file.push(0);
    file[40..48].copy_from_slice(&(start as u64).to_ne_bytes());
    file[60..62].copy_from_slice(&4096u16.to_ne_bytes());
    file[62..64].copy_from_slice(&0u16.to_ne_bytes());
    let started = std::time::Instant::now();
    assert!(Elf::parse(&file).unwrap().section(".llmrtmf").is_none());
    assert!(started.elapsed() < std::time::Duration::from_secs(2), "{:?}", started.elapsed());
}
