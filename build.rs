//! Compiles the host policy code always, and the CUDA kernels when a toolchain is there.
//!
//! Looks for nvcc in `NVCC`, `CUDA_HOME`, then where `cargo xtask setup` (`.toolchain`) and `cusync setup` (the user's data
//! folder) put it. `CUSYNC_KERNELS=FILE` takes a prebuilt library of exactly this ABI instead. Without either, or without the
//! feature `cuda`, the C ABI is compiled from `csrc/nocuda.c`: the same functions, which answer "not built". Never uses the network and never asks
//! the driver. Objects live in `target/kernels` (`kernels-delays` with `CUSYNC_DELAYS=1`), shared by all profiles; nvcc's
//! dependency files decide what is stale.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;
use std::{env, fs};

#[path = "build/prebuilt.rs"]
mod prebuilt;

/// nvcc takes up to 3 GB for one Hopper kernel, so no more than this many run at once.
const MAX_NVCC: usize = 2;

/// Lists the objects that this script has written, so that it removes its own stale ones and nothing else.
const MANIFEST: &str = "objects.txt";

struct Toolchain {
    nvcc: PathBuf,
    cuda_lib: PathBuf,
    cutlass: PathBuf,
}

fn main() {
    let root = PathBuf::from(env::var("CARGO_MANIFEST_DIR").expect("cargo sets CARGO_MANIFEST_DIR"));
    for var in ["NVCC", "CUDA_HOME", "CUTLASS_DIR", "CUSYNC_ARCHS", "CUSYNC_DELAYS", "CUSYNC_KERNELS"] {
        println!("cargo:rerun-if-env-changed={var}");
    }
    if injects_delays() {
        println!("cargo:rustc-env=CUSYNC_HAS_DELAYS=1");
    }
    println!("cargo:rerun-if-changed=csrc");
    // Cargo takes a file that is not there for one that has changed, and would build the crate anew every time.
    // `cargo xtask setup` touches this script when it has made the toolchain.
    for folder in toolchain_folders(&root) {
        let stamp = folder.join(".stamp");
        if stamp.exists() {
            println!("cargo:rerun-if-changed={}", stamp.display());
        }
    }

    let host = sources(&root.join("csrc/host"), "cpp");
    if !host.is_empty() {
        cc::Build::new()
            .cpp(true)
            .std("c++17")
            .include(root.join("csrc"))
            .include(root.join("csrc/include"))
            .files(host)
            .compile("cusync_host");
    }

    let abi = prebuilt::abi(&root, env!("CARGO_PKG_VERSION")).unwrap_or_else(|why| panic!("{why}"));
    println!("cargo:rustc-env=CUSYNC_ABI={abi}");
    let cuda = env::var_os("CARGO_FEATURE_CUDA").is_some();
    match env::var_os("CUSYNC_KERNELS").filter(|_| cuda) {
        Some(file) => return take_prebuilt(&PathBuf::from(file), &abi),
        None => build_version(&root, &abi),
    }
    match find_toolchain(&root).filter(|_| cuda) {
        Some(toolchain) => {
            build_kernels(&root, &toolchain);
            build_suite(&root, &toolchain);
        }
        None => {
            if root.join("csrc/nocuda.c").exists() {
                cc::Build::new()
                    .include(root.join("csrc"))
                    .include(root.join("csrc/include"))
                    .file(root.join("csrc/nocuda.c"))
                    .compile("cusync_kernels");
            }
            println!("cargo:rustc-env=CUSYNC_BUILT_ARCHS=");
            write_suite(&[]);
        }
    }
}

/// Where `cargo xtask setup` and `cusync setup` install the toolchain.
fn toolchain_folders(root: &Path) -> Vec<PathBuf> {
    let home = || env::var_os("HOME").map(|home| PathBuf::from(home).join(".local/share"));
    let data = env::var_os("XDG_DATA_HOME").map(PathBuf::from).or_else(home);
    [Some(root.join(".toolchain")), data.map(|data| data.join("cusync/toolchain"))]
        .into_iter()
        .flatten()
        .collect()
}

/// Links a library that was made elsewhere, by `cargo xtask dist`.
fn take_prebuilt(file: &Path, abi: &str) {
    println!("cargo:rerun-if-changed={}", file.display());
    let library = prebuilt::read(file, abi).unwrap_or_else(|why| panic!("{why}"));
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    fs::write(out.join("libcusync_kernels.a"), library).expect("the target folder is writable");
    println!("cargo:rustc-link-search=native={}", out.display());
    for lib in ["static=cusync_kernels", "dylib=stdc++", "dylib=dl", "dylib=rt", "dylib=pthread"] {
        println!("cargo:rustc-link-lib={lib}");
    }
    println!("cargo:rustc-env=CUSYNC_BUILT_ARCHS=80;90a");
    let suite = file.with_file_name("suite.fatbin");
    let image = fs::read(&suite).unwrap_or_default();
    if !image.is_empty() {
        prebuilt::verify_sum(&suite, &image).unwrap_or_else(|why| panic!("{why}"));
    }
    write_suite(&image);
}

/// The ABI's name, an object of the library of kernels.
fn build_version(root: &Path, abi: &str) {
    cc::Build::new()
        .file(root.join("csrc/abi/version.c"))
        .define("CUSYNC_ABI", format!("\"{abi}\"").as_str())
        .compile("cusync_version");
}

/// Architectures to build for, from `CUSYNC_ARCHS` (default `80;90a`).
fn architectures() -> Vec<String> {
    let list = env::var("CUSYNC_ARCHS").unwrap_or_else(|_| "80;90a".into());
    let archs: Vec<String> =
        list.split([';', ',']).map(|a| a.trim().to_owned()).filter(|a| !a.is_empty()).collect();
    for arch in &archs {
        match arch.as_str() {
            "80" | "90a" => {}
            "90" => panic!(
                "CUSYNC_ARCHS names 90: Hopper kernels need 90a (with 90 they compile and then abort on the device)"
            ),
            other => panic!("CUSYNC_ARCHS names {other}: this project builds for 80 and 90a"),
        }
    }
    assert!(!archs.is_empty(), "CUSYNC_ARCHS is empty: name 80, 90a or both, separated by ';'");
    archs
}

fn find_toolchain(root: &Path) -> Option<Toolchain> {
    let folders = toolchain_folders(root);
    let local = folders.iter().find(|folder| folder.exists()).unwrap_or(&folders[0]).clone();
    let home = env::var_os("CUDA_HOME").map(PathBuf::from).unwrap_or_else(|| local.join("nvidia/cu13"));
    let nvcc = env::var_os("NVCC").map(PathBuf::from).unwrap_or_else(|| home.join("bin/nvcc"));
    let cutlass =
        env::var_os("CUTLASS_DIR").map(PathBuf::from).unwrap_or_else(|| local.join("cutlass_library/source"));
    if !nvcc.exists() {
        return None;
    }
    if !cutlass.join("include/cutlass/cutlass.h").exists() {
        println!(
            "cargo:warning=nvcc found at {} but no CUTLASS at {}: building without kernels; run `cargo xtask setup` or set CUTLASS_DIR",
            nvcc.display(),
            cutlass.display()
        );
        return None;
    }
    let cuda_lib = ["lib64", "lib", "targets/x86_64-linux/lib"]
        .iter()
        .map(|l| home.join(l))
        .find(|l| l.join("libcudart_static.a").exists())?;
    Some(Toolchain { nvcc, cuda_lib, cutlass })
}

/// Files with the extension under `dir`, sorted, so that archives are reproducible.
fn sources(dir: &Path, extension: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = entry.path();
        if path.is_dir() {
            found.extend(sources(&path, extension));
        } else if path.extension().is_some_and(|e| e == extension) {
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Whether the kernels get delays for fault injection, which cost time even where they are off.
fn injects_delays() -> bool {
    env::var_os("CUSYNC_DELAYS").is_some_and(|v| v == "1")
}

/// nvcc's arguments for a source that is only for one architecture, or for all; `None` when it is for none of `archs`.
fn nvcc_flags(
    root: &Path,
    toolchain: &Toolchain,
    only: Option<&str>,
    archs: &[String],
) -> Option<Vec<String>> {
    let mut flags: Vec<String> =
        ["-std=c++17", "-O3", "--expt-relaxed-constexpr", "--expt-extended-lambda", "-Xcompiler", "-fPIC"]
            .map(String::from)
            .to_vec();
    flags.extend(["-Xptxas", "-v", "-DNDEBUG", "-DCUTLASS_ENABLE_GDC_FOR_SM90=1"].map(String::from));
    if injects_delays() {
        flags.push("-DCUSYNC_DELAYS=1".into());
    }
    let mut any = false;
    for arch in archs {
        flags.push(format!("-DCUSYNC_BUILD_SM{}=1", arch.to_uppercase()));
        if only.is_none_or(|only| only == arch) {
            any = true;
            // PTX beside the sm_80 machine code lets newer GPUs run that family too.
            flags.push(match arch.as_str() {
                "80" => "-gencode=arch=compute_80,code=[sm_80,compute_80]".into(),
                _ => format!("-gencode=arch=compute_{arch},code=sm_{arch}"),
            });
        }
    }
    for include in [
        root.join("csrc"),
        root.join("csrc/include"),
        toolchain.cutlass.join("include"),
        toolchain.cutlass.join("tools/util/include"),
    ] {
        flags.push("-I".into());
        flags.push(include.display().to_string());
    }
    any.then_some(flags)
}

struct Job {
    source: PathBuf,
    object: PathBuf,
    flags: Vec<String>,
}

/// A source to compile: its object's name, and its one architecture where it has one.
struct Source {
    name: String,
    path: PathBuf,
    only: Option<String>,
}

impl Source {
    /// A file under `csrc`: csrc/kernels/streamk/sm90/f16.cu -> streamk_sm90_f16, for 90a.
    fn written(root: &Path, path: PathBuf) -> Source {
        let csrc = root.join("csrc");
        let place = path.strip_prefix(&csrc).expect("sources lie in csrc");
        let place = place.strip_prefix("kernels").unwrap_or(place).with_extension("");
        let parts: Vec<String> =
            place.components().map(|c| c.as_os_str().to_string_lossy().into_owned()).collect();
        let only = [("sm90", "90a"), ("sm80", "80")]
            .into_iter()
            .find(|(folder, _)| parts.iter().any(|p| p == folder));
        Source { name: parts.join("_"), only: only.map(|(_, arch)| arch.to_owned()), path }
    }

    /// A line of csrc/abi/instances.txt for one element type, as a file in `folder`.
    fn generated(root: &Path, line: &str, element: &str, folder: &Path) -> Source {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [family, arch, tile, ring, cluster, operations @ ..] = &columns[..] else {
            panic!("csrc/abi/instances.txt: a line has at least six columns, not: {line}")
        };
        let sizes = |text: &str| text.split('x').map(str::to_owned).collect::<Vec<_>>();
        let (tile, cluster) = (sizes(tile), sizes(cluster));
        assert!(
            tile.len() == 3 && cluster.len() == 2 && !operations.is_empty(),
            "csrc/abi/instances.txt: {line}"
        );
        let suffix = if cluster == ["1", "1"] { String::new() } else { format!("_c{}", cluster.join("x")) };
        // Kernels of one shape differ in what they run beside products of matrices.
        let others = operations.iter().filter(|o| !o.ends_with("gemm")).map(|o| format!("_{o}"));
        let others: String = others.collect();
        let name = format!("{family}_sm{arch}_{}x{}{suffix}{others}_{element}", tile[0], tile[1]);
        let enumerators = operations.iter().map(|o| format!("CUSYNC_{}", o.to_uppercase()));
        let arguments = [
            vec![format!("CUSYNC_{}", element.to_uppercase())],
            tile[..2].to_vec(),
            vec![ring.replace('-', "0")],
            cluster,
            enumerators.collect(),
        ];
        // What tells an operation from another, where the family is built from operations, as all but decode kernels are.
        let includes: String = operations
            .iter()
            .filter(|_| *family != "decode")
            .map(|o| format!("kernels/{o}/sm{arch}/operation.cuh"))
            .filter(|file| root.join("csrc").join(file).exists())
            .map(|file| format!("#include \"{file}\"\n"))
            .collect();
        let text = format!(
            "// Made by build.rs from csrc/abi/instances.txt.\n\
             {includes}\
             #include \"kernels/{family}/sm{arch}/launch.cuh\"\n\n\
             namespace cusync::kernels {{\n\
             KernelTable {name}() {{ return {family}_sm{arch}<{}>(); }}\n\
             }}  // namespace cusync::kernels\n",
            arguments.concat().join(", ")
        );
        let path = folder.join(format!("{name}.cu"));
        write_if_new(&path, &text);
        Source { name, path, only: Some(if *arch == "90" { "90a".into() } else { (*arch).to_owned() }) }
    }
}

/// The kernels of csrc/abi/instances.txt that `archs` name, and the list of them that the registry includes.
fn instances(root: &Path, archs: &[String], folder: &Path) -> Vec<Source> {
    let table =
        fs::read_to_string(root.join("csrc/abi/instances.txt")).expect("the table of instances is there");
    let lines = table.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#'));
    let all =
        lines.flat_map(|line| ["f16", "bf16"].map(|element| Source::generated(root, line, element, folder)));
    let built: Vec<Source> =
        all.filter(|s| s.only.as_ref().is_some_and(|only| archs.contains(only))).collect();
    let list: String = built.iter().map(|s| format!("CUSYNC_INSTANCE({})\n", s.name)).collect();
    write_if_new(&folder.join("instances.inc"), &list);
    built
}

/// Leaves a file that is as it should be with its time, by which nvcc's dependency files decide.
fn write_if_new(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    fs::write(path, text).expect("the target folder is writable");
}

fn build_kernels(root: &Path, toolchain: &Toolchain) {
    let archs = architectures();
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Sets of their own, so that building one does not throw the other away.
    let folder = if injects_delays() { "cusync-kernels-delays" } else { "cusync-kernels" };
    // target/PROFILE/build/cusync-HASH/out -> target/cusync-kernels: one set of objects for every profile.
    let cache =
        out.ancestors().nth(4).expect("OUT_DIR lies four levels below the target folder").join(folder);
    fs::create_dir_all(&cache).expect("the target folder is writable");

    let mut objects = Vec::new();
    let mut stale = Vec::new();
    let folders = [root.join("csrc/abi"), root.join("csrc/kernels")];
    let written = folders.iter().flat_map(|folder| sources(folder, "cu"));
    let mut all: Vec<Source> = written.map(|path| Source::written(root, path)).collect();
    all.extend(instances(root, &archs, &cache));
    for source in all {
        let Some(mut flags) = nvcc_flags(root, toolchain, source.only.as_deref(), &archs) else { continue };
        flags.extend(["-I".into(), cache.display().to_string()]);
        let mut hasher = DefaultHasher::new();
        (&flags, &source.path, &toolchain.nvcc).hash(&mut hasher);
        let object = cache.join(format!("{}-{:016x}.o", source.name, hasher.finish()));
        objects.push(object.clone());
        if is_stale(&object) {
            stale.push(Job { source: source.path, object, flags });
        }
    }
    let count = stale.len();
    let queue = Mutex::new(stale);
    std::thread::scope(|scope| {
        for _ in 0..concurrent_nvcc() {
            scope.spawn(|| {
                loop {
                    let mut queue = queue.lock().expect("no nvcc thread panics while it holds the lock");
                    let job = queue.pop().map(|job| (job, queue.len()));
                    drop(queue);
                    let Some((job, left)) = job else { break };
                    tell(&format!("cusync: kernel {} of {count}", count - left));
                    compile(&toolchain.nvcc, &job);
                }
            });
        }
    });

    if objects.is_empty() {
        println!("cargo:rustc-env=CUSYNC_BUILT_ARCHS=");
        return;
    }
    let mut archive = cc::Build::new();
    archive.objects(&objects).cargo_metadata(false).compile("cusync_kernels");
    println!("cargo:rustc-link-search=native={}", out.display());
    println!("cargo:rustc-link-lib=static=cusync_kernels");
    println!("cargo:rustc-link-search=native={}", toolchain.cuda_lib.display());
    for lib in ["static=cudart_static", "dylib=stdc++", "dylib=dl", "dylib=rt", "dylib=pthread"] {
        println!("cargo:rustc-link-lib={lib}");
    }
    println!("cargo:rustc-env=CUSYNC_BUILT_ARCHS={}", archs.join(";"));
    println!("cargo:rustc-env=CUSYNC_KERNEL_OBJECTS={}", cache.display());
    remove_stale(&cache, &objects);
}

/// Tells a person at the terminal: Cargo keeps what build scripts print, and kernels take minutes.
fn tell(line: &str) {
    if let Ok(mut terminal) = fs::File::options().write(true).open("/dev/tty") {
        let _ = writeln!(terminal, "{line}");
    }
}

/// As many as cargo was told to use (`-j`), up to what memory allows.
fn concurrent_nvcc() -> usize {
    let jobs = env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(1);
    MAX_NVCC.min(jobs).max(1)
}

/// Removes objects of sources that are gone: they must not pile up, nor mislead the machine-code test. Only files that
/// an earlier run of this script has listed are touched; the folder may hold somebody else's.
fn remove_stale(cache: &Path, objects: &[PathBuf]) {
    let manifest = cache.join(MANIFEST);
    let name = |path: &PathBuf| path.file_name().map(|n| n.to_string_lossy().into_owned());
    let current: Vec<String> = objects.iter().filter_map(name).collect();
    for gone in
        fs::read_to_string(&manifest).unwrap_or_default().lines().filter(|l| !current.iter().any(|c| c == l))
    {
        for extension in ["o", "d", "ptxas", "partial"] {
            let _ = fs::remove_file(cache.join(gone).with_extension(extension));
        }
    }
    fs::write(manifest, current.join("\n") + "\n").expect("the target folder is writable");
}

/// Compiles the kernels of the kernel-level suite to an image that the driver loads at run time; seconds, so always anew.
fn build_suite(root: &Path, toolchain: &Toolchain) {
    let image = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("suite.partial");
    let source = root.join("csrc/suite/suite.cu");
    let mut command = Command::new(&toolchain.nvcc);
    command.args(["-std=c++17", "-O3", "-fatbin", "-I"]).arg(root.join("csrc/include"));
    for arch in architectures() {
        let code = if arch == "80" { "[sm_80,compute_80]".into() } else { format!("sm_{arch}") };
        command.arg(format!("-gencode=arch=compute_{arch},code={code}"));
    }
    let output = command.arg(&source).arg("-o").arg(&image).output();
    let output = output.unwrap_or_else(|e| panic!("{} did not start: {e}", toolchain.nvcc.display()));
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nvcc failed on {}:\n{log}", source.display());
    write_suite(&fs::read(&image).expect("nvcc wrote the image"));
}

/// The image that the binary embeds; empty: not built.
fn write_suite(image: &[u8]) {
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("suite.fatbin");
    fs::write(out, image).expect("the target folder is writable");
}

/// An object is stale when it, or its dependency file, is missing or older than anything the latter names.
fn is_stale(object: &Path) -> bool {
    let modified = |p: &Path| fs::metadata(p).and_then(|m| m.modified()).ok();
    let (Some(built), Ok(deps)) = (modified(object), fs::read_to_string(object.with_extension("d"))) else {
        return true;
    };
    let newer = |p: &str| modified(Path::new(p)).unwrap_or(SystemTime::now()) > built;
    deps.replace("\\\n", " ").split_whitespace().skip(1).any(|p| p != ":" && newer(p))
}

fn compile(nvcc: &Path, job: &Job) {
    let partial = job.object.with_extension("partial");
    let output = Command::new(nvcc)
        .args(&job.flags)
        .arg("-MD")
        .arg("-MF")
        .arg(job.object.with_extension("d"))
        .arg("-c")
        .arg(&job.source)
        .arg("-o")
        .arg(&partial)
        .output()
        .unwrap_or_else(|e| panic!("{} did not start: {e}", nvcc.display()));
    let log = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "nvcc failed on {}:\n{log}", job.source.display());
    // ptxas reports registers and spills here; a test reads it.
    fs::write(job.object.with_extension("ptxas"), log.as_bytes()).expect("the target folder is writable");
    // Renamed last, so that an interrupted build never leaves half an object that looks fresh.
    fs::rename(&partial, &job.object).expect("the target folder is writable");
}
