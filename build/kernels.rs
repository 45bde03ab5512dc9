//! Compiles the CUDA kernels with nvcc, several per source, with as many sources in parallel as memory and
//! cargo allow.

use std::collections::BTreeSet;
use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;
use std::time::SystemTime;
use std::{env, fs};

use crate::Toolchain;

/// Memory that nvcc needs for one source, in bytes.
const NVCC_MEMORY: u64 = 4 << 30;

/// Number of lines of the kernel table compiled together, ordered by tile. Hopper compilations mostly read
/// headers and instantiate layouts, which kernels of one source share: the four lines of chain kernels with
/// 128 x 128 tiles take 78 s together, and a single one 56 s. Ampere loops are unrolled, so time and memory
/// are proportional to the number of kernels.
fn lines_a_source(arch: &str) -> usize {
    if arch == "80" { 2 } else { 4 }
}

/// Lists the objects written by this script, so that it removes only its own stale ones.
const MANIFEST: &str = "objects.txt";

/// Sources under `dir` with the extension, sorted, so that archives are reproducible.
pub(crate) fn sources(dir: &Path, extension: &str) -> Vec<PathBuf> {
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

/// Whether kernels are built with delays for fault injection, which cost time even when disabled.
pub(crate) fn injects_delays() -> bool {
    env::var_os("CUSYNC_DELAYS").is_some_and(|v| v == "1")
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

/// nvcc arguments for a source that is for one architecture, or for all; `None` if it is for none of `archs`.
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
    // Machine code of kernels that are alike, at a fifth of the default's size.
    flags.push("--compress-mode=size".into());
    if injects_delays() {
        flags.push("-DCUSYNC_DELAYS=1".into());
    }
    let mut any = false;
    for arch in archs {
        flags.push(format!("-DCUSYNC_BUILD_SM{}=1", arch.to_uppercase()));
        if only.is_none_or(|only| only == arch) {
            any = true;
            // PTX next to the sm_80 machine code lets newer GPUs run that family too.
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

/// A source to compile: the name of its object, and its architecture if it has only one.
struct Source {
    name: String,
    path: PathBuf,
    only: Option<String>,
}

impl Source {
    /// A file under `csrc`: csrc/kernels/streamk/sm90/kernel.cu -> streamk_sm90_kernel, for 90a.
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

    /// Lines of csrc/abi/instances.txt of one family and architecture, each for both element types, as a file
    /// in `folder`.
    fn generated(root: &Path, lines: &[&Line], folder: &Path) -> Source {
        let Line { family, arch, .. } = lines[0];
        let operations: BTreeSet<&str> = lines.iter().flat_map(|line| &line.operations).copied().collect();
        // Headers of the operations, if the family is built from operations, as all but decode kernels are.
        let includes: String = operations
            .iter()
            .filter(|_| *family != "decode")
            .map(|o| format!("kernels/{o}/sm{arch}/operation.cuh"))
            .filter(|file| root.join("csrc").join(file).exists())
            .map(|file| format!("#include \"{file}\"\n"))
            .collect();
        let tables: String =
            lines.iter().flat_map(|line| ELEMENTS.map(|element| line.table(element))).collect();
        let text = format!(
            "// Made by build.rs from csrc/abi/instances.txt.\n\
             {includes}\
             #include \"kernels/{family}/sm{arch}/launch.cuh\"\n\n\
             namespace cusync::kernels {{\n\
             {tables}\
             }}  // namespace cusync::kernels\n",
        );
        let name = lines[0].name.clone();
        let path = folder.join(format!("{name}.cu"));
        write_if_new(&path, &text);
        Source { name, path, only: Some(lines[0].built_for()) }
    }
}

const ELEMENTS: [&str; 2] = ["f16", "bf16"];

/// A line of csrc/abi/instances.txt.
struct Line<'a> {
    family: &'a str,
    arch: &'a str,
    operations: Vec<&'a str>,
    /// Name of the kernel without its element type.
    name: String,
    /// Template arguments between the element type and the operations; none if a file of csrc/kernels has the table.
    sizes: Vec<String>,
}

impl Line<'_> {
    fn read(line: &str) -> Line<'_> {
        let columns: Vec<&str> = line.split_whitespace().collect();
        let [family, arch, tile, ring, cluster, operations @ ..] = &columns[..] else {
            panic!("csrc/abi/instances.txt: a line has at least six columns, not: {line}")
        };
        let split = |text: &str| text.split('x').map(str::to_owned).collect::<Vec<_>>();
        // Kernels of the same shape differ in their operations other than matrix products.
        let others = operations.iter().filter(|o| !o.ends_with("gemm")).map(|o| format!("_{o}"));
        let others: String = others.collect();
        if *tile == "-" {
            let name = format!("{family}_sm{arch}{others}");
            return Line { family, arch, operations: operations.to_vec(), name, sizes: Vec::new() };
        }
        let (tile, cluster) = (split(tile), split(cluster));
        assert!(
            tile.len() == 3 && cluster.len() == 2 && !operations.is_empty(),
            "csrc/abi/instances.txt: {line}"
        );
        let suffix = if cluster == ["1", "1"] { String::new() } else { format!("_c{}", cluster.join("x")) };
        let name = format!("{family}_sm{arch}_{}x{}{suffix}{others}", tile[0], tile[1]);
        let sizes = [tile[..2].to_vec(), vec![ring.replace('-', "0")], cluster].concat();
        Line { family, arch, operations: operations.to_vec(), name, sizes }
    }

    fn built_for(&self) -> String {
        if self.arch == "90" { "90a".into() } else { self.arch.to_owned() }
    }

    /// Whether one source can contain both, and they share some headers.
    fn is_like(&self, other: &Line<'_>) -> bool {
        (self.family, self.arch) == (other.family, other.arch)
            && self.operations.iter().any(|o| other.operations.contains(o))
    }

    fn table(&self, element: &str) -> String {
        let (name, family, arch) = (&self.name, self.family, self.arch);
        let words = std::iter::once(&element).chain(&self.operations);
        let mut arguments: Vec<String> =
            words.map(|word| format!("CUSYNC_{}", word.to_uppercase())).collect();
        arguments.splice(1..1, self.sizes.iter().cloned());
        let arguments = arguments.join(", ");
        format!("KernelTable {name}_{element}() {{ return {family}_sm{arch}<{arguments}>(); }}\n")
    }
}

/// Kernels of csrc/abi/instances.txt for `archs`, and their list for the registry.
fn instances(root: &Path, archs: &[String], folder: &Path) -> Vec<Source> {
    let table =
        fs::read_to_string(root.join("csrc/abi/instances.txt")).expect("the table of instances is there");
    let lines = table.lines().filter(|l| !l.trim().is_empty() && !l.starts_with('#')).map(Line::read);
    let lines: Vec<Line> = lines.filter(|line| archs.contains(&line.built_for())).collect();
    let names = lines.iter().flat_map(|line| ELEMENTS.map(|element| format!("{}_{element}", line.name)));
    let list: String = names.map(|name| format!("CUSYNC_INSTANCE({name})\n")).collect();
    write_if_new(&folder.join("instances.inc"), &list);
    let by_tile = |like: &[Line]| {
        let mut like: Vec<&Line> = like.iter().collect();
        like.sort_by_key(|line| &line.sizes[..2]);
        like.chunks(lines_a_source(like[0].arch))
            .map(|lines| Source::generated(root, lines, folder))
            .collect::<Vec<_>>()
    };
    let generated: Vec<Line> = lines.into_iter().filter(|line| !line.sizes.is_empty()).collect();
    generated.chunk_by(|a, b| a.is_like(b)).flat_map(by_tile).collect()
}

/// Writes a file only if its text changed, to preserve the time that nvcc's dependency files rely on.
fn write_if_new(path: &Path, text: &str) {
    if fs::read_to_string(path).is_ok_and(|old| old == text) {
        return;
    }
    write(path, text.as_bytes());
}

/// Writes a file of the build, or fails with a suggested fix.
pub(crate) fn write(path: &Path, bytes: &[u8]) {
    fs::write(path, bytes).unwrap_or_else(|e| panic!("{}", unwritten(path, &e)));
}

fn unwritten(path: &Path, error: &std::io::Error) -> String {
    let help = "free space, or set CARGO_TARGET_DIR to a folder that can be written";
    format!("{} cannot be written: {error}: {help}", path.display())
}

/// Compiles stale sources, archives all objects, and passes the link options to cargo.
pub(crate) fn build(root: &Path, toolchain: &Toolchain) {
    let archs = architectures();
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR"));
    // Separate folders, so that building one variant does not discard the other.
    let folder = if injects_delays() { "cusync-kernels-delays" } else { "cusync-kernels" };
    // target/PROFILE/build/cusync-HASH/out -> target/cusync-kernels: one set of objects for every profile.
    let cache =
        out.ancestors().nth(4).expect("OUT_DIR lies four levels below the target folder").join(folder);
    fs::create_dir_all(&cache).unwrap_or_else(|e| panic!("{}", unwritten(&cache, &e)));

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
    compile_all(&toolchain.nvcc, stale);

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
    build_suite(root, toolchain, &archs);
}

/// Compiles the jobs in parallel and reports progress. The first failure ends it.
fn compile_all(nvcc: &Path, jobs: Vec<Job>) {
    let count = jobs.len();
    let queue = Mutex::new(jobs);
    let next = || {
        let mut queue = queue.lock().expect("nothing panics while it holds the lock");
        queue.pop().map(|job| (job, count - queue.len()))
    };
    let work = || -> Result<(), String> {
        while let Some((job, number)) = next() {
            tell(&format!("cusync: compiling kernels, {number} of {count}"));
            compile(nvcc, &job).inspect_err(|_| while next().is_some() {})?;
        }
        Ok(())
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = (0..concurrent_nvcc()).map(|_| scope.spawn(work)).collect();
        for worker in workers {
            let done = worker.join().unwrap_or_else(|_| Err("a thread that ran nvcc ended early".into()));
            done.unwrap_or_else(|why| panic!("{why}"));
        }
    });
}

/// Prints to the user's terminal: Cargo hides the output of build scripts, and kernels take minutes.
fn tell(line: &str) {
    if let Ok(mut terminal) = fs::File::options().write(true).open("/dev/tty") {
        let _ = writeln!(terminal, "{line}");
    }
}

/// Number of parallel compilations: cargo's `-j`, limited by free memory.
fn concurrent_nvcc() -> usize {
    let jobs = env::var("NUM_JOBS").ok().and_then(|jobs| jobs.parse().ok()).unwrap_or(1);
    let memory = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let free = memory.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next());
    let bytes = free.and_then(|kib| kib.parse::<u64>().ok()).map_or(2 * NVCC_MEMORY, |kib| kib << 10);
    jobs.min((bytes / NVCC_MEMORY) as usize).max(1)
}

/// Removes objects of deleted sources: they must not pile up, nor mislead the machine-code test. Touches only
/// files listed by an earlier run of this script; the folder may contain other files.
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
    write(&manifest, (current.join("\n") + "\n").as_bytes());
}

/// Compiles the kernels of the kernel-level suite to an image that the driver loads at run time. Takes
/// seconds, so it always rebuilds.
fn build_suite(root: &Path, toolchain: &Toolchain, archs: &[String]) {
    let image = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("suite.partial");
    let source = root.join("csrc/suite/suite.cu");
    let mut command = Command::new(&toolchain.nvcc);
    command.args(["-std=c++17", "-O3", "-fatbin", "-I"]).arg(root.join("csrc/include"));
    for arch in archs {
        let code = if arch == "80" { "[sm_80,compute_80]".into() } else { format!("sm_{arch}") };
        command.arg(format!("-gencode=arch=compute_{arch},code={code}"));
    }
    run(command.arg(&source).arg("-o").arg(&image), &source).unwrap_or_else(|why| panic!("{why}"));
    write_suite(&fs::read(&image).expect("nvcc wrote the image"));
}

/// Image embedded in the binary; empty if not built.
pub(crate) fn write_suite(image: &[u8]) {
    let out = PathBuf::from(env::var("OUT_DIR").expect("cargo sets OUT_DIR")).join("suite.fatbin");
    write(&out, image);
}

/// Whether an object or its dependency file is missing, or older than any file listed there.
fn is_stale(object: &Path) -> bool {
    let modified = |p: &Path| fs::metadata(p).and_then(|m| m.modified()).ok();
    let (Some(built), Ok(deps)) = (modified(object), fs::read_to_string(object.with_extension("d"))) else {
        return true;
    };
    let newer = |p: &str| modified(Path::new(p)).unwrap_or(SystemTime::now()) > built;
    deps.replace("\\\n", " ").split_whitespace().skip(1).any(|p| p != ":" && newer(p))
}

fn compile(nvcc: &Path, job: &Job) -> Result<(), String> {
    let partial = job.object.with_extension("partial");
    let mut command = Command::new(nvcc);
    command.args(&job.flags).arg("-MD").arg("-MF").arg(job.object.with_extension("d"));
    let log = run(command.arg("-c").arg(&job.source).arg("-o").arg(&partial), &job.source)?;
    // ptxas reports registers and spills here; a test reads it.
    let written = fs::write(job.object.with_extension("ptxas"), log);
    // Renamed last, so that an interrupted build never leaves a partial object that looks fresh.
    written.and_then(|()| fs::rename(&partial, &job.object)).map_err(|e| unwritten(&job.object, &e))
}

/// Runs nvcc on a source and returns its output.
fn run(command: &mut Command, source: &Path) -> Result<String, String> {
    let output = command.output();
    let output = output.map_err(|e| format!("{} did not start: {e}", command.get_program().display()))?;
    let log = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return Ok(log.into_owned());
    }
    let full = log
        .contains("No space left")
        .then_some("\nfree space, in the target folder and in TMPDIR, where nvcc works");
    Err(format!("nvcc failed on {}:\n{log}{}", source.display(), full.unwrap_or_default()))
}
