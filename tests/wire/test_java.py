"""Partitions are those that Kafka's Java client chooses, asked of the client itself."""

import subprocess
from pathlib import Path

import pytest

from saros.wire.partitions import partitions_of
from tests.broker import jars, java_path
from tests.servers import UnavailableError

PARTITIONS = 16
PROGRAM = """
import java.nio.charset.StandardCharsets;
import java.util.Scanner;
import org.apache.kafka.common.utils.Utils;

public class Partitions {
    public static void main(String[] arguments) {
        for (String hex : new Scanner(System.in).useDelimiter("\\n").tokens().toList()) {
            byte[] key = java.util.HexFormat.of().parseHex(hex);
            System.out.println(Utils.toPositive(Utils.murmur2(key)) % Integer.parseInt(arguments[0]));
        }
    }
}
"""


def test_a_user_s_partition_is_the_java_client_s(tmp_path: Path) -> None:
    try:
        program, path = java_path(), jars()
    except UnavailableError as error:
        pytest.skip(str(error))
    source = tmp_path / "Partitions.java"
    source.write_text(PROGRAM)
    users = [f"user-{k}" for k in range(1000)] + ["ä/ö", "日本", "x" * 256, "🙂" * 64, "a", "ab", "abc", "abcd"]
    answer = subprocess.run(
        [program, "-cp", f"{path}/*", str(source), str(PARTITIONS)],
        input="\n".join(user.encode().hex() for user in users),
        capture_output=True,
        text=True,
        check=True,
    )
    assert [int(line) for line in answer.stdout.split()] == partitions_of(users, PARTITIONS).tolist()
