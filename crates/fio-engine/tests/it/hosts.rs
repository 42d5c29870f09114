//! Programs that are no fio, or another.

use std::process::Command;

use crate::{command, engine, output, scratch};

/// A program that loads the engine as fio does, and says whether it got one.
const HOST: &str = r#"
#include <dlfcn.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#ifdef VERSION
const char fio_version_string[] = VERSION;
#endif
#ifdef OPTIONS
char fio_options[1 << 20];
#endif
void log_err(const char *format, ...)
{
    va_list args;
    va_start(args, format);
    printf("log: ");
    vprintf(format, args);
    va_end(args);
}
int main(int argc, char **argv)
{
    void *library = dlopen(argv[1], RTLD_LAZY), *engine = NULL;
    void (*get)(void **) = library ? dlsym(library, "get_ioengine") : NULL;
    if (!get)
        return puts(dlerror()), 2;
    get(&engine);
    dlclose(library);
    puts(engine ? "an engine" : "none");
    return 0;
}
"#;

fn asked(defines: &[&str]) -> String {
    let dir = scratch();
    let (source, program) = (dir.path().join("host.c"), dir.path().join("host"));
    std::fs::write(&source, HOST).unwrap();
    let mut compiler = Command::new("cc");
    compiler.args(defines).arg("-rdynamic").arg("-o").arg(&program).arg(&source).arg("-ldl");
    let compiled = output(&mut compiler);
    assert!(compiled.status.success(), "{}", String::from_utf8_lossy(&compiled.stderr));
    let ran = output(Command::new(program).arg(engine()));
    assert!(ran.status.success(), "{ran:?}");
    String::from_utf8(ran.stdout).unwrap() + &String::from_utf8_lossy(&ran.stderr)
}

#[test]
fn another_version_is_refused() {
    for version in ["fio-3.34", "fio-3.33-dirty", "fio-3.3", ""] {
        let said = asked(&[&format!("-DVERSION=\"{version}\"")]);
        let expected = format!("log: meantime: this is {version}, whose structures");
        assert!(said.contains(&expected), "{version}: {said}");
        assert!(said.contains("This engine knows fio-3.33, fio-3.41\n"), "{said}");
        assert!(said.contains("none\n"), "{said}");
    }
}

#[test]
fn what_only_says_that_it_is_fio_is_refused() {
    let said = asked(&[]);
    assert!(said.contains("this program is not fio") && said.contains("none\n"), "{said}");
    let said = asked(&["-DVERSION=\"fio-3.33\""]);
    assert!(said.contains("exports no table of its options"), "{said}");
    let said = asked(&["-DVERSION=\"fio-3.33\"", "-DOPTIONS"]);
    assert!(said.contains("its option rw is nowhere") && said.contains("none\n"), "{said}");
}

/// fio shows the engine's options.
#[test]
fn fio_shows_the_options() {
    let library = engine().display().to_string();
    let shown = output(Command::new("fio").arg(format!("--enghelp={library}")));
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("device ") && shown.contains("completion "), "{shown}");
    let shown = output(Command::new("fio").arg(format!("--enghelp={library},device")));
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("URI of the device"), "{shown}");
}

/// The engine's options in a job file, as documented.
#[test]
fn a_job_file_works() {
    let dir = scratch();
    let file = dir.path().join("job.fio");
    let job = "[global]\nthread=1\ndevice=mem:4M?model=null\n[a]\nrw=randread\nbs=4k\nio_size=1M\n";
    let engine = format!("ioengine=external:{}\n", engine().display());
    std::fs::write(&file, job.replace("device=", &(engine + "device="))).unwrap();
    let ran = output(Command::new(command("fio".as_ref(), "").get_program()).arg(&file));
    let said = String::from_utf8(ran.stdout).unwrap();
    assert!(ran.status.success() && said.contains("ioengine=meantime"), "{said}");
}
