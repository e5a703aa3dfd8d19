-- MCALL: all new values and the mask; a change of the key goes by another way, and a price that falls is told.
create table dbo.part_mcall (id int not null primary key, name nvarchar(40) not null, price decimal(10, 2) null)
go
create procedure dbo.part_merge @c1 int, @c2 nvarchar(40), @c3 decimal(10, 2), @pkc1 int, @bitmap binary(1)
as
begin
    begin transaction
    begin try
        if substring(@bitmap, 1, 1) & 4 = 4
           and exists (select 1 from dbo.part_mcall where id = @pkc1 and price > @c3)
            raiserror ('the price of %d falls', 10, 1, @pkc1)
        if substring(@bitmap, 1, 1) & 1 = 1
        begin
            delete from dbo.part_mcall where id = @pkc1
            insert into dbo.part_mcall values (@c1, @c2, @c3)
        end
        else
            update dbo.part_mcall set name = @c2, price = @c3 where id = @pkc1
        commit transaction
    end try
    begin catch
        declare @text nvarchar(2000) = error_message()
        rollback transaction
        raiserror (@text, 16, 1)
    end catch
end
go
