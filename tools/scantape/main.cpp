// The program scantape: parses the command line, runs one subcommand, turns what failed into an exit code.
#include <cstdio>
#include <exception>
#include <new>
#include <system_error>

#include "commands.h"
#include "scantape/error.h"
#include "scantape/version.h"

namespace {

using namespace scantape;

int exit_code(Code code) {
  switch (code) {
    case Code::ok:
      return cli::kDone;
    case Code::invalid_argument:
    case Code::unsupported:
      return cli::kWrongUsage;
    case Code::io:
    case Code::corrupt_data:
      return cli::kBadInput;
    case Code::out_of_memory:
    case Code::cuda:
      return cli::kSystem;
  }
  return cli::kSystem;
}

int complain(int code, const char* message) {
  std::fprintf(stderr, "scantape: %s\n", message);
  return code;
}

int run(int argc, char** argv) {
  CLI::App app{
      "State space model kernels with hand-written gradients, and the program that trains models on market "
      "bars."};
  app.name("scantape");
  app.set_version_flag("--version", std::string("scantape ") + version());
  app.require_subcommand(1);
  app.footer("Example: scantape synth --out bars && scantape train --data-dir bars --output-dir run");
  cli::register_info(app);
  cli::register_ops(app);
  cli::register_gradcheck(app);
  cli::register_inspect(app);
  cli::register_synth(app);
  cli::register_train(app);
  cli::register_evaluate(app);
  cli::register_generate(app);
  try {
    app.parse(argc, argv);
    if (std::fflush(stdout) != 0) throw Error(Code::io, "the output cannot be written");
    return cli::kDone;
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app.exit(error);  // --help, --version
    return complain(cli::kWrongUsage, (std::string(error.what()) + " (see scantape --help)").c_str());
  } catch (const cli::CheckFailed& failed) {
    return complain(cli::kCheckFailed, failed.what());
  } catch (const Error& error) {
    return complain(exit_code(error.code()), error.what());
  } catch (const std::bad_alloc&) {
    return complain(cli::kSystem, "out of memory");
  } catch (const std::system_error& error) {
    return complain(exit_code(Code::io), error.what());
  } catch (const std::exception& error) {
    return complain(cli::kSystem, error.what());
  }
}

}  // namespace

int main(int argc, char** argv) {
  return run(argc, argv);
}
